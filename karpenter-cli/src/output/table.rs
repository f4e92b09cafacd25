use std::{collections::BTreeMap, fmt::Write as _};

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use karpenter_core::{Catalogs, PlannedClaim, Price, Quantity, ResourceList};

use super::choice::Choices;
use crate::{error::one_line, plan::Outcome};

/// Hours of a month, as clouds bill it: a twelfth of 365 days.
pub(super) const HOURS_PER_MONTH: f64 = 730.0;
/// The width that tables are folded to.
const WIDTH: u16 = 100;
/// The most nodes that are listed one by one.
pub(super) const MAX_NODES: usize = 10;
/// The most pods of a group that are named.
const MAX_NAMES: usize = 3;

/// A plan for people.
pub(super) fn table(outcome: &Outcome) -> String {
    let mut out = String::new();
    let parts = [
        summary(outcome),
        new_nodes(outcome),
        existing_nodes(outcome),
        left_over(outcome),
        warnings(&outcome.warnings),
    ];
    for part in parts.into_iter().filter(|part| !part.is_empty()) {
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(&part);
    }
    out
}

/// What the plan comes to, in two or three lines.
fn summary(outcome: &Outcome) -> String {
    let plan = &outcome.plan;
    if outcome.pod_count == 0 {
        return "No pod wants a place: there is nothing to do.\n".to_owned();
    }
    let pods_on = |pods: &mut dyn Iterator<Item = usize>| pods.sum::<usize>();
    let new = pods_on(&mut plan.claims().iter().map(|c| c.pods.len()));
    let existing = pods_on(&mut plan.existing().values().map(Vec::len));
    let left = outcome.errors.len();
    let verb = if outcome.pod_count == 1 { "wants" } else { "want" };
    let mut out = format!("{} {verb} a place: ", count(outcome.pod_count, "pod"));
    let _ = writeln!(out, "{new} on new nodes, {existing} on nodes that exist, {left} left over.");
    if plan.claims().is_empty() {
        out.push_str("No new nodes.\n");
    } else {
        let hourly = plan.hourly_cost().dollars_per_hour();
        let monthly = hourly * HOURS_PER_MONTH;
        let nodes = count(plan.claims().len(), "new node");
        let _ = writeln!(out, "{nodes}: ${hourly:.4} an hour, ${monthly:.2} a month (730 hours).");
    }
    if !plan.claims().is_empty() {
        out.push_str(&bound(outcome));
    }
    if !plan.is_complete() {
        out.push_str("Planning was stopped before its end: there may be a better plan.\n");
    }
    out
}

/// What any plan costs at least, and how far the plan is from that.
fn bound(outcome: &Outcome) -> String {
    let bound = outcome.certificate.lower_bound.dollars_per_hour();
    let whose = if outcome.plan.unplaced().is_empty() { "" } else { " for the pods that have a place" };
    if bound > 0.0 {
        let gap = outcome.plan.hourly_cost().dollars_per_hour() / bound - 1.0;
        format!("Lower bound{whose}: ${bound:.4} an hour; the plan is {:.1} % above it.\n", 100.0 * gap.max(0.0))
    } else {
        format!("Lower bound{whose}: none above zero.\n")
    }
}

/// New nodes that look alike in the table.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Group<'o> {
    pub(super) pool: &'o str,
    pub(super) types: &'o [String],
    pub(super) zone: String,
    pub(super) capacity_type: String,
    pub(super) price: Price,
}

impl<'o> Group<'o> {
    /// All claims by what they look like.
    pub(super) fn all(claims: &'o [PlannedClaim], catalogs: &'o Catalogs) -> BTreeMap<Self, Vec<&'o PlannedClaim>> {
        let mut groups: BTreeMap<Self, Vec<&PlannedClaim>> = BTreeMap::new();
        let mut choices = Choices::new(catalogs);
        for claim in claims {
            groups.entry(Self::of(claim, &mut choices)).or_default().push(claim);
        }
        groups
    }

    /// What a row says of these claims, which look so: how many, pool, types, zone, capacity type, what each and what all cost,
    /// and their pods.
    pub(super) fn cells(&self, claims: &[&PlannedClaim]) -> [String; 8] {
        let each = self.price.dollars_per_hour();
        [
            claims.len().to_string(),
            self.pool.to_owned(),
            type_and_others(self.types),
            self.zone.clone(),
            self.capacity_type.clone(),
            format!("{each:.4}"),
            format!("{:.4}", each * claims.len() as f64),
            claims.iter().map(|claim| claim.pods.len()).sum::<usize>().to_string(),
        ]
    }

    fn of(claim: &'o PlannedClaim, choices: &mut Choices<'o>) -> Self {
        let choice = choices.of(claim);
        Self {
            pool: &claim.node_pool,
            types: &claim.instance_types,
            zone: choice.zones.text(),
            capacity_type: choice.capacity_types.text(),
            price: claim.cheapest_price,
        }
    }
}

fn new_nodes(outcome: &Outcome) -> String {
    let groups = Group::all(outcome.plan.claims(), &outcome.catalogs);
    if groups.is_empty() {
        return String::new();
    }
    let mut table = plain_table();
    table.set_header([
        "NODES",
        "POOL",
        "CHEAPEST TYPE",
        "ZONE",
        "CAPACITY",
        "$/H EACH",
        "$/H ALL",
        "PODS",
        "CPU",
        "MEMORY",
    ]);
    for (group, claims) in &groups {
        let (cpu, memory) = (utilization(outcome, claims, "cpu"), utilization(outcome, claims, "memory"));
        table.add_row(group.cells(claims).into_iter().chain([cpu, memory]));
    }
    align_right(&mut table, &[0, 5, 6, 7, 8, 9]);
    format!("New nodes (CPU and MEMORY: what is requested of the cheapest type)\n{}\n", table.trim_fmt())
}

pub(super) fn type_and_others(types: &[String]) -> String {
    match types {
        [] => "none".to_owned(),
        [only] => only.clone(),
        [first, others @ ..] => format!("{first} (+{})", others.len()),
    }
}

/// What the claims request of a resource, as a percentage of what so many nodes of their cheapest type have.
fn utilization(outcome: &Outcome, claims: &[&PlannedClaim], resource: &str) -> String {
    let allocatable = |claim: &PlannedClaim| {
        let cheapest = claim.instance_types.first()?;
        let instance_type = outcome.catalogs.get(&claim.node_pool)?.get(cheapest)?;
        Some(instance_type.allocatable())
    };
    let amount = |list: &ResourceList| list.get(resource).map_or(0.0, Quantity::as_f64);
    let requested: f64 = claims.iter().map(|claim| amount(&claim.requests)).sum();
    let available: f64 = claims.iter().filter_map(|claim| allocatable(claim)).map(|list| amount(&list)).sum();
    if available > 0.0 { format!("{:.0}%", 100.0 * requested / available) } else { "-".to_owned() }
}

fn existing_nodes(outcome: &Outcome) -> String {
    let nodes: Vec<_> = outcome.plan.existing().iter().filter(|(_, pods)| !pods.is_empty()).collect();
    if nodes.is_empty() {
        return String::new();
    }
    let mut table = plain_table();
    table.set_header(["NODE", "PODS", "WHICH"]);
    for (node, pods) in nodes.iter().take(MAX_NODES) {
        let names = first_names(pods.iter().map(ToString::to_string));
        table.add_row([node.as_str(), &pods.len().to_string(), &names]);
    }
    align_right(&mut table, &[1]);
    let mut out = format!("Nodes that exist and take pods\n{}\n", table.trim_fmt());
    if let Some(others) = nodes.get(MAX_NODES..).filter(|others| !others.is_empty()) {
        let pods = others.iter().map(|(_, pods)| pods.len()).sum();
        let _ = writeln!(out, " and {} with {}", count(others.len(), "more node"), count(pods, "pod"));
    }
    out
}

/// The pods without a place, by reason, the most frequent one first.
fn left_over(outcome: &Outcome) -> String {
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (pod, reason) in &outcome.errors {
        groups.entry(reason).or_default().push(pod);
    }
    if groups.is_empty() {
        return String::new();
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, pods)| std::cmp::Reverse(pods.len()));
    let mut out = "Left over\n".to_owned();
    for (reason, pods) in groups {
        let names = first_names(pods.iter().map(|&name| name.to_owned()));
        out.push_str(&folded(&format!("{}: {reason}", count(pods.len(), "pod")), " "));
        out.push_str(&folded(&names, "   "));
    }
    out
}

pub(super) fn warnings(warnings: &[String]) -> String {
    if warnings.is_empty() {
        return String::new();
    }
    let mut out = "Warnings\n".to_owned();
    for warning in warnings {
        out.push_str(&folded(warning, " "));
    }
    out
}

/// A text in lines that start with `indent`; all but the first are indented further. Words are not broken.
pub(super) fn folded(text: &str, indent: &str) -> String {
    let (mut out, mut line) = (String::new(), indent.to_owned());
    let mut is_fresh = true;
    for word in one_line(text).split_whitespace() {
        if !is_fresh && line.chars().count() + 1 + word.chars().count() > usize::from(WIDTH) {
            let _ = writeln!(out, "{line}");
            line = format!("{indent}    ");
            is_fresh = true;
        }
        let _ = write!(line, "{}{word}", if is_fresh { "" } else { " " });
        is_fresh = false;
    }
    out + &line + "\n"
}

/// The first few names, and how many there are beside them.
pub(super) fn first_names(names: impl ExactSizeIterator<Item = String>) -> String {
    let others = names.len().saturating_sub(MAX_NAMES);
    let shown = names.take(MAX_NAMES).collect::<Vec<_>>().join(", ");
    if others > 0 { format!("{shown} and {others} more") } else { shown }
}

pub(super) fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

pub(super) fn plain_table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_width(WIDTH);
    table
}

pub(super) fn align_right(table: &mut Table, columns: &[usize]) {
    for &index in columns {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}
