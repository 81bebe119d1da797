//! Plots: queries a second against recall, as SVG.

use std::fmt::Write;

use super::curve::{Curve, Point};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 480.0;
/// The frame's left, right, top and bottom.
const FRAME: [f64; 4] = [70.0, 650.0, 46.0, 430.0];
/// The least recall that is shown.
const RECALL_MIN: f64 = 0.85;
/// Colours that people who see few of them can tell apart.
const COLOURS: [&str; 9] =
    ["#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#666666", "#8c564b", "#000000"];

/// The scales of both axes.
struct Scales {
    /// Powers of ten of queries a second, at the bottom and the top.
    powers: [f64; 2],
}

impl Scales {
    fn x(&self, recall: f64) -> f64 {
        FRAME[0] + (recall - RECALL_MIN) / (1.0 - RECALL_MIN) * (FRAME[1] - FRAME[0])
    }

    fn y(&self, a_second: f64) -> f64 {
        let [low, high] = self.powers;
        FRAME[3] - (a_second.log10() - low) / (high - low) * (FRAME[3] - FRAME[2])
    }
}

fn a_second(point: &Point) -> f64 {
    1e6 / point.us
}

/// Returns the plot of some curves.
pub fn svg(title: &str, curves: &[Curve]) -> String {
    let shown = |point: &&Point| point.recall >= RECALL_MIN;
    let speeds = || curves.iter().flat_map(|curve| curve.points.iter().filter(shown)).map(a_second);
    let (low, high) = (speeds().fold(f64::MAX, f64::min), speeds().fold(f64::MIN, f64::max));
    if low > high {
        return String::new();
    }
    let scales = Scales { powers: [low.log10() - 0.08, high.log10() + 0.08] };
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n\
         <text x=\"{}\" y=\"26\" font-size=\"15\">{title}</text>\n",
        FRAME[0]
    );
    axes(&mut out, &scales);
    for (number, curve) in curves.iter().enumerate() {
        line(&mut out, &scales, curve, COLOURS[number % COLOURS.len()], number);
    }
    out.push_str("</svg>\n");
    out
}

fn axes(out: &mut String, scales: &Scales) {
    let [left, right, top, bottom] = FRAME;
    for step in 0..=15 {
        let recall = RECALL_MIN + f64::from(step) / 100.0;
        let x = scales.x(recall);
        rule(out, [x, top, x, bottom]);
        if step % 3 == 0 || step == 14 {
            let _ =
                writeln!(out, "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{recall:.2}</text>", bottom + 18.0);
        }
    }
    for power in 0..7 {
        for digit in 1..10 {
            let speed = f64::from(digit) * 10f64.powi(power);
            let y = scales.y(speed);
            if !(top..=bottom).contains(&y) {
                continue;
            }
            rule(out, [left, y, right, y]);
            if [1, 2, 5].contains(&digit) {
                let _ =
                    writeln!(out, "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{speed}</text>", left - 8.0, y + 4.0);
            }
        }
    }
    let _ = writeln!(
        out,
        "<rect x=\"{left}\" y=\"{top}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#333\"/>\n\
         <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">recall@10</text>\n\
         <text transform=\"translate(16 {}) rotate(-90)\" text-anchor=\"middle\">questions a second</text>",
        right - left,
        bottom - top,
        (left + right) / 2.0,
        bottom + 38.0,
        (top + bottom) / 2.0
    );
}

fn rule(out: &mut String, [x1, y1, x2, y2]: [f64; 4]) {
    let _ = writeln!(out, "<path d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\" stroke=\"#e4e4e4\"/>");
}

fn line(out: &mut String, scales: &Scales, curve: &Curve, colour: &str, number: usize) {
    let places: Vec<(f64, f64)> = curve
        .points
        .iter()
        .filter(|point| point.recall >= RECALL_MIN)
        .map(|point| (scales.x(point.recall), scales.y(a_second(point))))
        .collect();
    let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _ =
        writeln!(out, "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>", path.join(" "));
    for (x, y) in places {
        let _ = writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
    }
    let (x, y) = (FRAME[1] + 14.0, FRAME[2] + 14.0 + 20.0 * number as f64);
    let _ = writeln!(out, "<rect x=\"{x}\" y=\"{}\" width=\"14\" height=\"4\" fill=\"{colour}\"/>", y - 6.0);
    let _ = writeln!(out, "<text x=\"{}\" y=\"{y}\">{}</text>", x + 20.0, curve.name);
}
