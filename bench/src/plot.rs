//! Plots as SVG: lines over steps, with their names at their ends, and bars.

use std::fmt::Write;

use crate::rounds::{Rounds, number};
use crate::scale::{Scale, apart};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 470.0;
const LEFT: f64 = 78.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 62.0;
const BOTTOM: f64 = 56.0;
/// The distance between two neighbouring names.
const LINE_HEIGHT: f64 = 16.0;
/// The first colour is semel's own.
const COLOURS: [&str; 9] =
    ["#0b57d0", "#c2410c", "#0f766e", "#7c3aed", "#a16207", "#be185d", "#4d7c0f", "#475569", "#111827"];

/// A plot, with the name of its file.
#[derive(Debug, Clone)]
pub(crate) struct Plot {
    pub(crate) file: &'static str,
    pub(crate) title: String,
    /// The measured quantity, and its unit.
    pub(crate) measure: &'static str,
    pub(crate) shape: Shape,
}

#[derive(Debug, Clone)]
pub(crate) enum Shape {
    /// A value for each step, from left to right.
    Lines { steps: Vec<String>, over: &'static str, logarithmic: bool, lines: Vec<Line> },
    /// One value each.
    Bars(Vec<(String, Rounds)>),
}

#[derive(Debug, Clone)]
pub(crate) struct Line {
    pub(crate) name: String,
    /// Set for a limit, which is dashed because it cannot be chosen.
    pub(crate) limit: bool,
    /// The number of the colour: a side has the same one in all plots.
    pub(crate) colour: usize,
    pub(crate) values: Vec<Rounds>,
}

impl Plot {
    pub(crate) fn svg(&self) -> String {
        let (body, height) = match &self.shape {
            Shape::Lines { steps, over, logarithmic, lines } => {
                (self.lines(steps, over, *logarithmic, lines), HEIGHT)
            }
            Shape::Bars(bars) => self.bars(bars),
        };
        format!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" font-family="system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif" font-size="13" fill="#1f2937">
<rect width="{WIDTH}" height="{height}" fill="#fcfcfd"/>
<text x="20" y="28" font-size="17" font-weight="600">{}</text>
<text x="20" y="47" fill="#6b7280">{}</text>
{body}</svg>
"##,
            escaped(&self.title),
            escaped(self.measure)
        )
    }

    fn lines(&self, steps: &[String], over: &str, logarithmic: bool, lines: &[Line]) -> String {
        let mut svg = String::new();
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        let all = lines.iter().flat_map(|line| &line.values);
        let scale = Scale::over(all.flat_map(|v| [v.least(), v.most()]), logarithmic, bottom, TOP + 8.0);
        let last = steps.len().saturating_sub(1).max(1) as f64;
        let x = |step: usize| LEFT + 14.0 + step as f64 / last * (right - LEFT - 28.0);
        for tick in scale.ticks() {
            let y = scale.at(tick);
            _ = writeln!(svg, r##"<path d="M{LEFT} {y:.1}H{right}" stroke="#e5e7eb"/>"##);
            let (at, down) = (LEFT - 8.0, y + 4.5);
            let label = tick_label(tick);
            _ = writeln!(
                svg,
                r##"<text x="{at}" y="{down:.1}" text-anchor="end" fill="#4b5563">{label}</text>"##
            );
        }
        for (at, step) in steps.iter().enumerate() {
            let (x, down) = (x(at), bottom + 20.0);
            _ = writeln!(svg, r##"<path d="M{x:.1} {bottom}v5" stroke="#9ca3af"/>"##);
            _ = writeln!(
                svg,
                r##"<text x="{x:.1}" y="{down}" text-anchor="middle" fill="#4b5563">{}</text>"##,
                escaped(step)
            );
        }
        let (middle, down) = (f64::midpoint(LEFT, right), HEIGHT - 14.0);
        _ = writeln!(svg, r##"<path d="M{LEFT} {bottom}H{right}" stroke="#9ca3af"/>"##);
        _ = writeln!(
            svg,
            r##"<text x="{middle}" y="{down}" text-anchor="middle" fill="#4b5563">{}</text>"##,
            escaped(over)
        );
        let ends: Vec<f64> =
            lines.iter().map(|line| line.values.last().map_or(bottom, |v| scale.at(v.median()))).collect();
        let places = apart(&ends, LINE_HEIGHT, TOP + 8.0, bottom);
        // The first line is drawn last, above all other lines.
        for (at, line) in lines.iter().enumerate().rev() {
            let colour = COLOURS[line.colour % COLOURS.len()];
            let width = if at == 0 { 3.0 } else { 1.8 };
            let dashes = if line.limit { r#" stroke-dasharray="6 4""# } else { "" };
            let mut path = String::new();
            for (step, values) in line.values.iter().enumerate() {
                let (x, y) = (x(step), scale.at(values.median()));
                _ = write!(path, "{}{x:.1} {y:.1}", if step == 0 { "M" } else { "L" });
                let (low, high) = (scale.at(values.least()), scale.at(values.most()));
                _ = writeln!(
                    svg,
                    r##"<path d="M{x:.1} {low:.1}V{high:.1}" stroke="{colour}" stroke-opacity="0.45"/>"##
                );
                _ = writeln!(
                    svg,
                    r##"<circle cx="{x:.1}" cy="{y:.1}" r="{:.1}" fill="{colour}"/>"##,
                    width + 0.7
                );
            }
            _ = writeln!(
                svg,
                r##"<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width}" stroke-linejoin="round"{dashes}/>"##
            );
            let (from, to, y, end) =
                (x(steps.len().saturating_sub(1)) + 6.0, right + 10.0, places[at], ends[at]);
            _ = writeln!(
                svg,
                r##"<path d="M{from:.1} {end:.1}L{to:.1} {y:.1}" stroke="{colour}" stroke-opacity="0.5"/>"##
            );
            let weight = if at == 0 { r#" font-weight="600""# } else { "" };
            let (right, down) = (to + 5.0, y + 4.5);
            _ = writeln!(
                svg,
                r##"<text x="{right:.1}" y="{down:.1}" fill="{colour}"{weight}>{}</text>"##,
                escaped(&line.name)
            );
        }
        svg
    }

    fn bars(&self, bars: &[(String, Rounds)]) -> (String, f64) {
        const STEP: f64 = 34.0;
        const NAMES: f64 = 190.0;
        let mut svg = String::new();
        let end = WIDTH - 110.0;
        let scale = Scale::over(bars.iter().map(|(_, values)| values.most()), false, NAMES, end);
        for (at, (name, values)) in bars.iter().enumerate() {
            let (top, colour) = (TOP + 8.0 + at as f64 * STEP, COLOURS[at % COLOURS.len()]);
            let (to, middle) = (scale.at(values.median()), top + 16.0);
            let weight = if at == 0 { r#" font-weight="600""# } else { "" };
            let (names, length) = (NAMES - 10.0, (to - NAMES).max(1.0));
            _ = writeln!(
                svg,
                r##"<text x="{names}" y="{middle}" text-anchor="end"{weight}>{}</text>"##,
                escaped(name)
            );
            _ = writeln!(
                svg,
                r##"<rect x="{NAMES}" y="{top}" width="{length:.1}" height="22" rx="2" fill="{colour}"/>"##
            );
            let (low, high, line) = (scale.at(values.least()), scale.at(values.most()), top + 11.0);
            _ = writeln!(
                svg,
                r##"<path d="M{low:.1} {line}H{high:.1}" stroke="#111827" stroke-width="1.5"/>"##
            );
            let right = to.max(high) + 8.0;
            _ = writeln!(svg, r##"<text x="{right:.1}" y="{middle}">{}</text>"##, number(values.median()));
        }
        (svg, TOP + 22.0 + bars.len() as f64 * STEP)
    }
}

fn tick_label(tick: f64) -> String {
    if tick >= 1e6 {
        format!("{} m", (tick / 1e4).round() / 1e2)
    } else if tick >= 1e3 {
        format!("{} k", (tick / 10.0).round() / 1e2)
    } else {
        format!("{}", (tick * 1e4).round() / 1e4)
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod facts {
    use super::*;

    #[test]
    fn svg_holds_every_line_and_no_bare_signs() {
        let line = |name: &str, limit| Line {
            name: name.to_owned(),
            limit,
            colour: 0,
            values: vec![2.0.into(), 3.0.into()],
        };
        let shape = Shape::Lines {
            steps: ["1", "4"].map(str::to_owned).to_vec(),
            over: "callers",
            logarithmic: true,
            lines: vec![line("a < b", false), line("limit", true)],
        };
        let svg = Plot { file: "x", title: "a & b".to_owned(), measure: "a second", shape }.svg();
        assert!(svg.contains("a &lt; b") && svg.contains("a &amp; b"));
        assert_eq!(svg.matches("stroke-dasharray").count(), 1);
        assert_eq!(svg.matches("<circle").count(), 4);
    }
}
