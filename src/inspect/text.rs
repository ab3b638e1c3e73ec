//! The text of values for users.

use std::time::Duration;

use comfy_table::{Table, presets};

/// Returns `19.4 s`, or `no end` for a time without an end.
pub(super) fn seconds(left: Option<Duration>) -> String {
    match left {
        None => "no end".into(),
        Some(left) => format!("{:.1} s", left.as_secs_f64()),
    }
}

pub(super) fn milliseconds(took: Duration) -> String {
    format!("{:.1} ms", took.as_secs_f64() * 1e3)
}

/// Writes columns without lines, which can be pasted into a ticket and read by `awk`.
pub(super) fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(header.iter().copied());
    for row in rows {
        table.add_row(row);
    }
    let text = table.to_string();
    let lines: Vec<&str> = text
        .lines()
        .map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end())
        .collect();
    lines.join("\n") + "\n"
}

pub(super) fn or_dash(text: Option<String>) -> String {
    text.filter(|text| !text.is_empty()).unwrap_or_else(|| "-".into())
}
