//! The text of a file of conversations: JSON in which a value that fits has one line.

use std::fmt::Write;

use serde_json::Value;

const WIDTH: usize = 140;

/// The fields of a conversation in the order of reading; all others follow, sorted.
const FIRST: [&str; 5] = ["about", "controllers", "action", "method", "path"];

pub(super) fn document(value: &Value) -> String {
    let mut text = String::new();
    write_value(value, 0, &mut text);
    text.push('\n');
    text
}

fn write_value(value: &Value, depth: usize, text: &mut String) {
    let short = value.to_string();
    let column = text.len() - text.rfind('\n').map_or(0, |end| end + 1);
    match value {
        Value::Object(fields) if column + short.len() > WIDTH || fields.contains_key("action") => {
            let mut names: Vec<&String> = fields.keys().collect();
            names.sort_by_key(|name| {
                FIRST
                    .iter()
                    .position(|first| first == name)
                    .unwrap_or(FIRST.len())
            });
            write_lines(depth, text, ('{', '}'), names, |name, text| {
                write!(text, "{}: ", Value::from(name.as_str())).unwrap();
                write_value(&fields[name.as_str()], depth + 1, text);
            });
        }
        Value::Array(items) if column + short.len() > WIDTH => {
            write_lines(depth, text, ('[', ']'), items.iter().collect(), |item, text| {
                write_value(item, depth + 1, text);
            });
        }
        _ => text.push_str(&short),
    }
}

fn write_lines<T>(
    depth: usize,
    text: &mut String,
    (open, close): (char, char),
    items: Vec<T>,
    write_item: impl Fn(T, &mut String),
) {
    text.push(open);
    let count = items.len();
    for (index, item) in items.into_iter().enumerate() {
        text.push('\n');
        text.push_str(&" ".repeat(depth + 1));
        write_item(item, text);
        if index + 1 < count {
            text.push(',');
        }
    }
    text.push('\n');
    text.push_str(&" ".repeat(depth));
    text.push(close);
}
