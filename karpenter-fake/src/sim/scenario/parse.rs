//! From text to commands.

use karpenter_core::{
    Price, Quantity,
    api::{ConditionStatus, DisruptionReason, IntOrPercent},
    labels,
    provider::RepairPolicy,
};

use super::{
    Command, Comparison, Countable, Doomed, Expectation, Fault, Manifests, NodeChoice, OfferingPattern, PriceChange,
    Protection, Scenario, ScenarioError, ScenarioErrorKind, Setup, Statement, Subject, pods,
    words::{Words, Wrong, duration, key},
};

const MEMORY: &str = "an amount of memory such as 500Mi";
/// The most answers that one command loses.
const MAX_LOST_ANSWERS: u32 = 1_000_000;
/// How long before it takes a machine back a large cloud says so.
const SPOT_NOTICE: std::time::Duration = std::time::Duration::from_mins(2);

const COMMANDS: [&str; 27] = [
    "seed",
    "catalog",
    "start",
    "option",
    "repair",
    "apply",
    "add-pods",
    "add-job",
    "add-daemons",
    "protect",
    "scale",
    "delete",
    "tick",
    "until",
    "ice",
    "price",
    "interrupt",
    "kill",
    "unhealthy",
    "withhold-memory",
    "lose-answers",
    "throttle",
    "lose-watch",
    "crash",
    "explain",
    "expect",
    "show",
];

pub(super) fn scenario(text: &str, file: &str) -> Result<Scenario, ScenarioError> {
    let mut out = Scenario { file: file.into(), setup: Setup::default(), statements: Vec::new() };
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.lines().enumerate().map(|(index, line)| (index + 1, line)).peekable();
    let mut has_begun = false;
    while let Some((number, line)) = lines.next() {
        if line.trim().is_empty() {
            continue;
        }
        let mut statement = Statement { line: number, text: line.trim_end().to_owned(), command: Command::Remark };
        if !line.starts_with('#') {
            if line.starts_with(char::is_whitespace) {
                let word = line.split_whitespace().next().unwrap_or("");
                return Err(Wrong::new(word, ScenarioErrorKind::Stray).at(file, number));
            }
            let mut words = Words::of(line);
            let parsed = parse(&mut words, &mut out.setup, (number, has_begun));
            statement.command =
                parsed.and_then(|command| words.end().map(|()| command)).map_err(|w| w.at(file, number))?;
            has_begun |= statement.command != Command::Setting;
        }
        if let Command::Apply(Manifests::Inline(block)) = &mut statement.command {
            let is_of_block = |line: &str| line.starts_with(char::is_whitespace) || line.trim().is_empty();
            let mut below: Vec<&str> = Vec::new();
            while let Some((_, line)) = lines.next_if(|(_, line)| is_of_block(line)) {
                below.push(line.trim_end());
            }
            let written: Vec<&str> = below.iter().copied().filter(|line| !line.is_empty()).collect();
            if written.is_empty() {
                return Err(Wrong::expected("", "a file, or manifests indented below").at(file, number));
            }
            statement.text = format!("{}\n{}", statement.text, written.join("\n"));
            *block = format!("{}{}\n", "\n".repeat(number), dedented(&below).join("\n"));
        }
        out.statements.push(statement);
    }
    Ok(out)
}

/// The lines without the indent that all of them have.
fn dedented<'t>(lines: &[&'t str]) -> Vec<&'t str> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let common = lines.iter().filter(|line| !line.is_empty()).map(|line| indent(line)).min().unwrap_or(0);
    lines.iter().map(|line| line.get(common..).unwrap_or("")).collect()
}

/// One line. `place` is its number, and whether a command that is no setting came before it.
fn parse(words: &mut Words<'_>, setup: &mut Setup, place: (usize, bool)) -> Result<Command, Wrong> {
    let name = words.word("a command")?;
    match name {
        "seed" | "catalog" | "start" | "option" | "repair" if place.1 => {
            Err(Wrong::new(name, ScenarioErrorKind::TooLate))
        }
        "seed" | "catalog" | "start" | "option" | "repair" => {
            setting(name, words, setup, place.0).map(|()| Command::Setting)
        }
        "ice" | "price" | "interrupt" | "kill" | "unhealthy" | "withhold-memory" | "lose-answers" | "throttle"
        | "lose-watch" => fault(name, words).map(Command::Fault),
        "apply" => Ok(Command::Apply(match words.next() {
            Some(file) => Manifests::File(file.to_owned()),
            None => Manifests::Inline(String::new()),
        })),
        "add-pods" => Ok(Command::Run(Box::new(pods::workload(words)?))),
        "add-job" => Ok(Command::Run(Box::new(pods::job(words)?))),
        "add-daemons" => Ok(Command::RunDaemons(Box::new(pods::daemons(words)?))),
        "protect" => Ok(Command::Protect { workload: words.key()?, rule: protection(words)? }),
        "scale" => Ok(Command::Scale { workload: words.key()?, replicas: words.count(pods::MAX_PODS)? }),
        "delete" => doomed(words).map(Command::Delete),
        "tick" => words.duration().map(Command::Tick),
        "until" => words.moment().map(Command::Until),
        "crash" => Ok(Command::Crash),
        "show" => Ok(Command::Show),
        "explain" => subject(words).map(Command::Explain),
        "expect" => expectation(words).map(Command::Expect),
        unknown => Err(Wrong::new(unknown, ScenarioErrorKind::UnknownCommand { meant: nearest(unknown) })),
    }
}

fn setting(name: &str, words: &mut Words<'_>, setup: &mut Setup, line: usize) -> Result<(), Wrong> {
    match name {
        "seed" => setup.seed = words.parse("a number")?,
        "start" => setup.start = words.timestamp()?,
        "catalog" => {
            let file = words.word("a file, or generated")?;
            setup.catalog = (file != "generated").then(|| (file.to_owned(), line));
        }
        "repair" => {
            let (condition, status) = condition(words.word("a condition such as Ready=False")?)?;
            words.keyword("after")?;
            setup.options.repair_policies.push(RepairPolicy::new(condition, status, words.duration()?));
        }
        _ => option(words, setup)?,
    }
    Ok(())
}

fn option(words: &mut Words<'_>, setup: &mut Setup) -> Result<(), Wrong> {
    const OPTIONS: &str = "batch-idle, batch-max, disruption, min-spot-types or slack";
    let options = &mut setup.options;
    match words.word(OPTIONS)? {
        "batch-idle" => options.batch_idle = words.duration()?,
        "batch-max" => options.batch_max = words.duration()?,
        "disruption" if words.skip("off") => options.disruption_period = None,
        "disruption" => options.disruption_period = Some(words.duration()?),
        "min-spot-types" => options.planner.min_spot_types = Some(words.parse("a number")?),
        "slack" => options.planner.slack = not_negative(words.word("a share such as 0.06")?, "a share such as 0.06")?,
        other => return Err(Wrong::expected(other, OPTIONS)),
    }
    Ok(())
}

fn fault(name: &str, words: &mut Words<'_>) -> Result<Fault, Wrong> {
    Ok(match name {
        "ice" => {
            let offerings = OfferingPattern {
                instance_type: any(words.word("an instance type, or *")?),
                zone: any(words.word("a zone, or *")?),
                capacity_type: any(words.word("a capacity type, or *")?),
            };
            words.keyword("for")?;
            Fault::SoldOut { offerings, duration: words.duration()? }
        }
        "price" => price(words)?,
        "interrupt" => {
            let node = node(words)?;
            let notice = words.peek().and_then(|word| word.strip_prefix("notice="));
            let notice = notice.map(duration).transpose()?;
            if notice.is_some() {
                words.next();
            }
            Fault::Interrupt { node, notice: notice.unwrap_or(SPOT_NOTICE) }
        }
        "kill" => Fault::Kill { node: node(words)?, is_silent: words.skip("silently") },
        "unhealthy" => {
            let node = node(words)?;
            let (condition, status) = condition(words.word("a condition such as Ready=False")?)?;
            Fault::Unhealthy { node, condition, status }
        }
        "withhold-memory" => {
            let instance_type = words.word("an instance type")?.to_owned();
            let word = words.word(MEMORY)?;
            let memory = word.parse().ok().filter(|memory: &Quantity| !memory.is_negative());
            let memory = memory.ok_or_else(|| Wrong::expected(word, MEMORY))?;
            Fault::WithholdMemory { instance_type, memory_bytes: memory.units_ceil() }
        }
        "lose-answers" => Fault::LoseAnswers(words.count(MAX_LOST_ANSWERS)?),
        "throttle" => Fault::Throttle(words.duration()?),
        _ => Fault::LoseWatch(words.duration()?),
    })
}

fn any(word: &str) -> Option<String> {
    (word != "*").then(|| word.to_owned())
}

/// Reads `TYPE [ZONE] [CAPACITY] CHANGE`.
fn price(words: &mut Words<'_>) -> Result<Fault, Wrong> {
    const CHANGE: &str = "a change of price such as x2 or =0.40";
    let instance_type = any(words.word("an instance type, or *")?);
    let mut places = Vec::new();
    loop {
        let word = words.word(CHANGE)?;
        let change = if let Some(amount) = word.strip_prefix('=') {
            let price = not_negative(amount, CHANGE).ok().and_then(Price::per_hour);
            Some(PriceChange::To(price.ok_or_else(|| Wrong::expected(word, CHANGE))?))
        } else {
            let factor = word.strip_prefix('x').and_then(|factor| not_negative(factor, CHANGE).ok());
            factor.map(PriceChange::Times)
        };
        let Some(change) = change else {
            if places.len() == 2 {
                return Err(Wrong::expected(word, CHANGE));
            }
            places.push(any(word));
            continue;
        };
        // Either may be left out, and no zone has the name of a capacity type.
        if places.len() == 1 && places[0].as_deref().is_some_and(is_capacity_type) {
            places.insert(0, None);
        }
        let mut places = places.into_iter();
        let mut next = || places.next().flatten();
        let offerings = OfferingPattern { instance_type, zone: next(), capacity_type: next() };
        return Ok(Fault::Price { offerings, change });
    }
}

fn is_capacity_type(word: &str) -> bool {
    [labels::ON_DEMAND, labels::SPOT, labels::RESERVED].contains(&word)
}

fn not_negative(word: &str, expected: &'static str) -> Result<f64, Wrong> {
    let number = word.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
    number.ok_or_else(|| Wrong::expected(word, expected))
}

/// Reads `CONDITION` or `CONDITION=STATUS`.
fn condition(word: &str) -> Result<(String, ConditionStatus), Wrong> {
    let (condition, status) = word.split_once('=').unwrap_or((word, "True"));
    let status = match status {
        "True" => ConditionStatus::True,
        "False" => ConditionStatus::False,
        "Unknown" => ConditionStatus::Unknown,
        _ => return Err(Wrong::expected(word, "a condition with the status True, False or Unknown")),
    };
    Ok((condition.to_owned(), status))
}

/// Reads the name of a node, or `a [CAPACITY] node [of POOL]`.
fn node(words: &mut Words<'_>) -> Result<NodeChoice, Wrong> {
    let word = words.word("a node, such as node-00000001 or: a spot node")?;
    if !matches!(word, "a" | "an") {
        return Ok(NodeChoice::Named(word.to_owned()));
    }
    let mut capacity_type = None;
    if !words.skip("node") {
        capacity_type = Some(words.word("the word `node`, or spot or on-demand")?.to_owned());
        words.keyword("node")?;
    }
    let pool = if words.skip("of") { Some(words.word("a node pool")?.to_owned()) } else { None };
    Ok(NodeChoice::Any { capacity_type, pool })
}

fn protection(words: &mut Words<'_>) -> Result<Protection, Wrong> {
    const EXPECTED: &str = "min-available= or max-unavailable=, with a number or a percentage";
    let word = words.word(EXPECTED)?;
    let wrong = || Wrong::expected(word, EXPECTED);
    let (name, value) = word.split_once('=').ok_or_else(wrong)?;
    let value: IntOrPercent = value.parse().map_err(|_| wrong())?;
    match name {
        "min-available" => Ok(Protection::MinAvailable(value)),
        "max-unavailable" => Ok(Protection::MaxUnavailable(value)),
        _ => Err(wrong()),
    }
}

fn doomed(words: &mut Words<'_>) -> Result<Doomed, Wrong> {
    const EXPECTED: &str = "workload/NAME, pod/NAME, node/NAME, nodeclaim/NAME, nodepool/NAME, budget/NAME, or: a node";
    if matches!(words.peek(), Some("a" | "an")) {
        return node(words).map(Doomed::Node);
    }
    let word = words.word(EXPECTED)?;
    let (kind, name) = word.split_once('/').ok_or_else(|| Wrong::expected(word, EXPECTED))?;
    Ok(match kind {
        "workload" => Doomed::Workload(key(name)?),
        "pod" => Doomed::Pod(key(name)?),
        "node" => Doomed::Node(NodeChoice::Named(name.to_owned())),
        "nodeclaim" => Doomed::NodeClaim(name.to_owned()),
        "nodepool" => Doomed::NodePool(name.to_owned()),
        "budget" => Doomed::Budget(key(name)?),
        _ => return Err(Wrong::expected(word, EXPECTED)),
    })
}

fn subject(words: &mut Words<'_>) -> Result<Subject, Wrong> {
    if let Some(name) = words.peek().and_then(|word| word.strip_prefix("pod/")) {
        words.next();
        return key(name).map(Subject::Pod);
    }
    if let Some(name) = words.peek().and_then(|word| word.strip_prefix("node/")) {
        words.next();
        return Ok(Subject::Node(NodeChoice::Named(name.to_owned())));
    }
    node(words).map(Subject::Node)
}

fn expectation(words: &mut Words<'_>) -> Result<Expectation, Wrong> {
    const EXPECTED: &str = "what is counted: nodes, claims, machines, pods, pending, disrupted, launched, refused, evicted, bill or \
        no-breaches";
    let what = match words.word(EXPECTED)? {
        "no-breaches" => return Ok(Expectation::NoBreaches),
        "bill" => {
            let comparison = comparison(words);
            let dollars = not_negative(words.word("dollars")?, "dollars such as 1.50")?;
            #[expect(clippy::cast_possible_truncation, reason = "what is too large becomes the largest")]
            let micro_dollars = (dollars * 1e6).round() as i64;
            return Ok(Expectation::Bill { comparison, micro_dollars });
        }
        "nodes" if words.skip("of") => Countable::Nodes { pool: Some(words.word("a node pool")?.to_owned()) },
        "nodes" if words.skip("with") => {
            const LABEL: &str = "a label such as topology.kubernetes.io/zone=zone-a";
            let word = words.word(LABEL)?;
            let (key, value) = word.split_once('=').ok_or_else(|| Wrong::expected(word, LABEL))?;
            Countable::NodesWith { key: key.to_owned(), value: value.to_owned() }
        }
        "nodes" => Countable::Nodes { pool: None },
        "claims" => Countable::Claims,
        "machines" => Countable::Machines,
        "pods" => {
            let workload = if words.skip("of") { Some(words.key()?) } else { None };
            words.keyword("running")?;
            Countable::Running { workload }
        }
        "pending" => Countable::Pending,
        "disrupted" => {
            let is_reason = words.peek().is_some_and(|word| word.starts_with(char::is_alphabetic));
            Countable::Disrupted { reason: is_reason.then(|| reason(words)).transpose()? }
        }
        "launched" => Countable::Launched,
        "refused" => Countable::Refused,
        "evicted" => Countable::Evicted,
        other => return Err(Wrong::expected(other, EXPECTED)),
    };
    let comparison = comparison(words);
    Ok(Expectation::Count { what, comparison, number: words.parse("a number")? })
}

fn reason(words: &mut Words<'_>) -> Result<DisruptionReason, Wrong> {
    const EXPECTED: &str = "Underutilized, Empty or Drifted";
    let word = words.word(EXPECTED)?;
    let all = [DisruptionReason::Underutilized, DisruptionReason::Empty, DisruptionReason::Drifted];
    all.into_iter().find(|reason| reason.name() == word).ok_or_else(|| Wrong::expected(word, EXPECTED))
}

fn comparison(words: &mut Words<'_>) -> Comparison {
    if words.skip("<=") {
        Comparison::AtMost
    } else if words.skip(">=") {
        Comparison::AtLeast
    } else {
        Comparison::Equal
    }
}

/// The command that is most like a word, if it is like one: two letters may be wrong, missing or too many.
fn nearest(word: &str) -> Option<&'static str> {
    const MAX_LETTERS: usize = 32;
    if word.chars().count() > MAX_LETTERS {
        return None;
    }
    let best = COMMANDS.into_iter().map(|command| (distance(word, command), command)).min()?;
    (best.0 <= 2).then_some(best.1)
}

/// How many letters must be changed, added or taken away.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, letter) in one.chars().enumerate() {
        let mut before = std::mem::replace(&mut row[0], i + 1);
        for (j, wanted) in other.iter().enumerate() {
            let change = before + usize::from(letter != *wanted);
            let best = change.min(row[j] + 1).min(row[j + 1] + 1);
            before = std::mem::replace(&mut row[j + 1], best);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests;
