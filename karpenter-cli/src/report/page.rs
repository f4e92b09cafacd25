//! The page.

use std::fmt::Write as _;

use karpenter_core::Timestamp;
use karpenter_fake::sim::{Sample, scenario::Play};

use super::{
    chart::{Chart, Line},
    escaped,
};

const STYLE: &str = include_str!("style.css");
const MICRO: f64 = 1e6;

pub(super) fn page(play: &Play, kept: Option<&Play>) -> String {
    let name = escaped(&play.scenario().file);
    let seed = play.scenario().setup.seed;
    let samples = play.books().samples();
    let (start, end) = (play.scenario().setup.start, play.live().now());
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{name}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <main>\n<h1>{name}</h1>\n<p>Simulated from {start} to {end} with seed {seed}.</p>\n"
    );
    out += &figures(play, kept);
    let bill_of = |play: &Play| {
        let samples = play.books().samples();
        points(samples, |sample| sample.bill_micro_dollars as f64 / MICRO)
    };
    let line = |name, is_steps, points| Line { name, points, is_steps };
    let mut bill = vec![line("bill", false, bill_of(play))];
    bill.push(line("lower bound", false, points(samples, |s| s.lower_bound_micro_dollars as f64 / MICRO)));
    bill.extend(kept.map(|kept| line("without consolidation", false, bill_of(kept))));
    let shares = vec![
        line("CPU", true, points(samples, |sample| sample.cpu_share * 100.0)),
        line("memory", true, points(samples, |sample| sample.memory_share * 100.0)),
    ];
    let charts = [
        ("nodes", "Nodes", "", 1.0, vec![line("nodes", true, points(samples, |sample| sample.nodes as f64))]),
        ("bill", "Bill so far", "$", 0.01, bill),
        ("use", "What pods ask for of the nodes' CPU and memory", "%", 100.0, shares),
        (
            "waiting",
            "Pods without a node",
            "",
            1.0,
            vec![line("pods", true, points(samples, |s| s.pods_waiting as f64))],
        ),
        ("running", "Pods that run", "", 1.0, vec![line("pods", true, points(samples, |s| s.pods_running as f64))]),
    ];
    for (id, title, unit, least, lines) in charts {
        out += &Chart { id, title, unit, lines, start, end, least }.html();
    }
    let transcript = escaped(play.transcript());
    let _ = write!(
        out,
        "<details><summary>What happened</summary><pre tabindex=\"0\">{transcript}</pre></details>\n</main>\n</body>\n</html>\n"
    );
    out
}

fn points(samples: &[Sample], value: impl Fn(&Sample) -> f64) -> Vec<(Timestamp, f64)> {
    samples.iter().map(|sample| (sample.at, value(sample))).collect()
}

/// The figures that count most.
fn figures(play: &Play, kept: Option<&Play>) -> String {
    let (account, books, counts) = (play.live().account(), play.books(), play.books().counts());
    let most_nodes = books.samples().iter().map(|sample| sample.nodes).max().unwrap_or(0);
    let bound = books.lower_bound_micro_dollars() as f64 / MICRO;
    let mut rows = vec![
        ("bill", account.bill.to_string()),
        ("lower bound", format!("${bound:.2}")),
        ("nodes", format!("{} at the end, {most_nodes} at most", account.nodes)),
        ("pods", format!("{} run, {} wait", account.pods_running, account.pods_waiting)),
        ("machines bought", format!("{}, and {} refused", counts.launched, counts.refused)),
        ("pods evicted", counts.evicted.to_string()),
        ("nodes disrupted", counts.disrupted.values().sum::<u64>().to_string()),
        ("expectations not met", play.failures().len().to_string()),
        ("rules broken", play.breaches().len().to_string()),
    ];
    if let Some(kept) = kept {
        rows.insert(2, ("without consolidation", kept.live().world().bill().to_string()));
    }
    let mut out = "<dl>\n".to_owned();
    for (name, value) in rows {
        let _ = writeln!(out, "<div><dt>{name}</dt><dd>{}</dd></div>", escaped(&value));
    }
    out + "</dl>\n"
}
