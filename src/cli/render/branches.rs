//! Branches as a tree, for people.

use jiff::Timestamp;
use serde_json::Value;

use crate::cli::output::{Paint, paint};

/// Renders lines of `branches.jsonl`, each branch behind two blanks more than the one above it.
pub fn render(lines: &[Value], now: Timestamp, coloured: bool) -> String {
    let path = |line: &Value| line["name"].as_str().unwrap_or_default().to_owned();
    let top = lines.iter().map(|line| path(line).matches('/').count()).min().unwrap_or(0);
    let names: Vec<String> = lines.iter().map(|line| indent(&path(line), top)).collect();
    let wide = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let agents: Vec<&str> = lines.iter().map(|line| line["agent"].as_str().unwrap_or("-")).collect();
    let wide_agent = agents.iter().map(|agent| agent.chars().count()).max().unwrap_or(0);
    let mut out = String::new();
    for ((line, name), agent) in lines.iter().zip(names).zip(agents) {
        let agent = if agent.is_empty() { "-" } else { agent };
        let age = age(&line["modified"], now);
        out += &format!("{name:wide$}  {agent:wide_agent$}  {age:>4}  {}\n", distance(line, coloured));
    }
    out
}

fn indent(path: &str, top: usize) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    format!("{}{name}", "  ".repeat(path.matches('/').count().saturating_sub(top)))
}

fn distance(line: &Value, coloured: bool) -> String {
    match (line["ahead"].as_u64(), line["behind"].as_u64()) {
        (Some(ahead), Some(behind)) => {
            let held = if line["lease"]["held"] == true { ", lease held" } else { "" };
            let proposed = if line["proposed"] == true { ", proposed" } else { "" };
            format!("{ahead} ahead, {behind} behind{held}{proposed}")
        }
        _ => paint(coloured, Paint::Dim, "closed to you"),
    }
}

/// Returns the time since a moment in its largest unit.
fn age(modified: &Value, now: Timestamp) -> String {
    let Some(then) = modified.as_str().and_then(|text| text.parse::<Timestamp>().ok()) else { return "-".into() };
    let seconds = now.duration_since(then).as_secs().max(0);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        3_600..86_400 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn branches_stand_in_below_their_parents() {
        let now: Timestamp = "2026-01-01T02:00:00Z".parse().unwrap();
        let open = json!({"name":"main/x","agent":"ann","modified":"2026-01-01T00:00:00Z","ahead":3,"behind":1,"lease":{"held":true},"proposed":true});
        let below = json!({"name":"main/x/y","agent":"","modified":"2026-01-01T01:59:30Z","ahead":0,"behind":0});
        let closed = json!({"name":"main/z","owner":7,"modified":"2025-12-30T00:00:00Z"});
        let text = render(&[open, below, closed], now, false);
        assert_eq!(
            text,
            "x    ann    2h  3 ahead, 1 behind, lease held, proposed\n  y  -     30s  0 ahead, 0 behind\nz    -      2d  closed to you\n"
        );
        assert_eq!(render(&[], now, false), "");
    }
}
