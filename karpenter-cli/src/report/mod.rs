//! A page about a simulated cluster: one HTML file that needs no other.

mod chart;
mod page;

use karpenter_fake::sim::scenario::Play;

/// The page of a scenario that was played, beside the same with nodes that are never consolidated if that was played too.
pub fn page(play: &Play, kept: Option<&Play>) -> String {
    page::page(play, kept)
}

/// A text as it stands in HTML.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            c => out.push(c),
        }
    }
    out
}
