//! Values over time, as a drawing and as a table.

use std::fmt::Write as _;

use karpenter_core::Timestamp;

use super::escaped;

/// The size of the drawing; the page stretches it.
const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 100.0;
/// The most rows of a table.
const MAX_ROWS: usize = 24;

/// One chart.
pub(super) struct Chart<'c> {
    /// What is unique to it on the page.
    pub(super) id: &'c str,
    pub(super) title: &'c str,
    /// The unit after numbers, such as `%`; or `$`, which stands before them.
    pub(super) unit: &'c str,
    pub(super) lines: Vec<Line<'c>>,
    pub(super) start: Timestamp,
    pub(super) end: Timestamp,
    /// The least that the scale goes up to.
    pub(super) least: f64,
}

/// One value over time.
pub(super) struct Line<'c> {
    pub(super) name: &'c str,
    pub(super) points: Vec<(Timestamp, f64)>,
    /// Whether it keeps a value until the next point, as counts do.
    pub(super) is_steps: bool,
}

impl Chart<'_> {
    /// A figure with a caption, a legend, the drawing and a table.
    pub(super) fn html(&self) -> String {
        let top = ceiling(self.lines.iter().flat_map(|line| &line.points).map(|(_, y)| *y).fold(self.least, f64::max));
        let (id, title) = (self.id, escaped(self.title));
        let mut out = format!("<figure>\n<figcaption id=\"{id}\">{title}</figcaption>\n");
        if self.lines.len() > 1 {
            out += &self.legend();
        }
        let described: Vec<String> = self.lines.iter().map(|line| self.described(line)).collect();
        let _ = write!(
            out,
            "<div class=\"chart\"><div class=\"y\" aria-hidden=\"true\"><span>{}</span><span>{}</span><span>{}</span></div>\n\
             <svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" aria-labelledby=\"{id}-t {id}-d\">\
             <title id=\"{id}-t\">{title}</title><desc id=\"{id}-d\">{}</desc>\n<path class=\"grid\" d=\"M0 0H{WIDTH}M0 {}H{WIDTH}M0 {HEIGHT}H{WIDTH}\"/>\n",
            self.number(top),
            self.number(top / 2.0),
            self.number(0.0),
            escaped(&described.join(" ")),
            HEIGHT / 2.0,
        );
        for (index, line) in self.lines.iter().enumerate() {
            let _ = writeln!(out, "<path class=\"line l{index}\" d=\"{}\"/>", self.path(line, top));
        }
        let _ = write!(
            out,
            "</svg>\n<div class=\"x\" aria-hidden=\"true\"><span>{}</span><span>{}</span><span>{}</span></div></div>\n",
            self.clock(self.start),
            self.clock(middle(self.start, self.end)),
            self.clock(self.end),
        );
        out + &self.table() + "</figure>\n"
    }

    fn legend(&self) -> String {
        let mut out = "<ul class=\"legend\">".to_owned();
        for (index, line) in self.lines.iter().enumerate() {
            let sample = format!(
                "<svg viewBox=\"0 0 24 8\" aria-hidden=\"true\"><path class=\"line l{index}\" d=\"M0 4H24\"/></svg>"
            );
            let _ = write!(out, "<li>{sample}{}</li>", escaped(line.name));
        }
        out + "</ul>\n"
    }

    /// What a line is like, for those who cannot see it.
    fn described(&self, line: &Line<'_>) -> String {
        let (Some(first), Some(last)) = (line.points.first(), line.points.last()) else { return String::new() };
        let most = line.points.iter().fold(*first, |most, point| if point.1 > most.1 { *point } else { most });
        format!(
            "{}: {} at first, {} at most at {}, {} at the end.",
            line.name,
            self.number(first.1),
            self.number(most.1),
            self.clock(most.0),
            self.number(last.1)
        )
    }

    fn path(&self, line: &Line<'_>, top: f64) -> String {
        let span = self.end.since(self.start).as_secs_f64().max(1.0);
        let x = |at: Timestamp| at.since(self.start).as_secs_f64() / span * WIDTH;
        let y = |value: f64| HEIGHT - value / top * HEIGHT;
        let mut out = String::new();
        let mut before: Option<f64> = None;
        for (index, (at, value)) in line.points.iter().enumerate() {
            let is_end = index + 1 == line.points.len();
            match before {
                None => {
                    let _ = write!(out, "M{:.1} {:.2}", x(*at), y(*value));
                }
                // A value that stays is drawn once.
                #[expect(clippy::float_cmp, reason = "it is the same number or it is not")]
                Some(before) if line.is_steps && before == *value && !is_end => continue,
                Some(_) if line.is_steps => {
                    let _ = write!(out, "H{:.1}V{:.2}", x(*at), y(*value));
                }
                Some(_) => {
                    let _ = write!(out, "L{:.1} {:.2}", x(*at), y(*value));
                }
            }
            before = Some(*value);
        }
        out
    }

    /// The same in numbers, at even distances in time.
    fn table(&self) -> String {
        let mut out = "<details><summary>As a table</summary><table><thead><tr><th scope=\"col\">time</th>".to_owned();
        for line in &self.lines {
            let _ = write!(out, "<th scope=\"col\">{}</th>", escaped(line.name));
        }
        out += "</tr></thead><tbody>\n";
        let count = self.lines.first().map_or(0, |line| line.points.len());
        let rows = count.min(MAX_ROWS);
        let last_row = rows.saturating_sub(1).max(1);
        for row in 0..rows {
            let index = row * (count - 1) / last_row;
            let at = self.lines[0].points[index].0;
            let _ = write!(out, "<tr><th scope=\"row\">{}</th>", self.clock(at));
            for line in &self.lines {
                let value = line.points.get(index).map_or_else(String::new, |(_, value)| self.number(*value));
                let _ = write!(out, "<td>{value}</td>");
            }
            out += "</tr>\n";
        }
        out + "</tbody></table></details>\n"
    }

    fn number(&self, value: f64) -> String {
        match self.unit {
            "$" => format!("${value:.2}"),
            "%" => format!("{value:.0} %"),
            // There is no half of a node: the middle of such a scale has no number.
            _ if value.fract() != 0.0 => String::new(),
            _ => format!("{value:.0}"),
        }
    }

    /// The time of day, after the number of the day if there are several.
    fn clock(&self, at: Timestamp) -> String {
        const DAY_MINUTES: i64 = 24 * 60;
        let minutes = |at: Timestamp| at.as_millis().div_euclid(60_000);
        let day = |at: Timestamp| minutes(at).div_euclid(DAY_MINUTES);
        let of_day = minutes(at).rem_euclid(DAY_MINUTES);
        let time = format!("{:02}:{:02}", of_day / 60, of_day % 60);
        if day(self.start) == day(self.end) { time } else { format!("day {} {time}", day(at) - day(self.start) + 1) }
    }
}

fn middle(from: Timestamp, to: Timestamp) -> Timestamp {
    from + to.since(from) / 2
}

/// A round number that is no smaller: 1, 2, 2.5 or 5 times a power of ten.
fn ceiling(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|step| *step >= value).unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_millis(minutes * 60_000)
    }

    fn chart(points: Vec<(Timestamp, f64)>, is_steps: bool) -> Chart<'static> {
        let lines = vec![Line { name: "n < m", points, is_steps }];
        Chart { id: "n", title: "N", unit: "", lines, start: at(0), end: at(100), least: 1.0 }
    }

    #[test]
    fn scales_end_at_round_numbers() {
        for (value, top) in
            [(0.0, 1.0), (0.7, 1.0), (1.0, 1.0), (1.1, 2.0), (21.0, 25.0), (260.0, 500.0), (99.0, 100.0)]
        {
            assert!((ceiling(value) - top).abs() < 1e-9, "{value}: {}", ceiling(value));
        }
    }

    #[test]
    fn steps_keep_their_value_and_lines_do_not() {
        let points = vec![(at(0), 0.0), (at(25), 2.0), (at(50), 2.0), (at(100), 1.0)];
        let steps = chart(points.clone(), true);
        assert_eq!(steps.path(&steps.lines[0], 2.0), "M0.0 100.00H250.0V0.00H1000.0V50.00");
        let line = chart(points, false);
        assert_eq!(line.path(&line.lines[0], 2.0), "M0.0 100.00L250.0 0.00L500.0 0.00L1000.0 50.00");
    }

    #[test]
    fn what_is_drawn_is_also_said_and_tabulated() {
        let html = chart(vec![(at(0), 0.0), (at(25), 2.0), (at(100), 1.0)], true).html();
        assert!(
            html.contains("<desc id=\"n-d\">n &lt; m: 0 at first, 2 at most at 00:25, 1 at the end.</desc>"),
            "{html}"
        );
        assert!(html.contains("<tr><th scope=\"row\">00:25</th><td>2</td></tr>"), "{html}");
    }

    #[test]
    fn a_long_table_is_thinned_out_and_keeps_both_ends() {
        let table = chart((0..1000).map(|m| (at(m), m as f64)).collect(), true).table();
        assert_eq!(table.matches("<tr><th scope=\"row\">").count(), MAX_ROWS);
        assert!(table.contains("<td>0</td>") && table.contains("<td>999</td>"));
    }
}
