//! Replaces UIDs, generated names, hashes and times by placeholders, numbered by their first appearance.

use std::collections::BTreeMap;

use serde_json::Value;

/// Labels whose value the server generates, with the name of the placeholder.
const GENERATED_LABELS: [(&str, &str); 2] = [
    ("pod-template-hash", "hash"),
    ("controller-revision-hash", "revision"),
];

/// The first year whose times are not written by a conversation.
const FIRST_OWN_YEAR: i16 = 2021;

/// The placeholders of the texts of one conversation that are different in each run.
#[derive(Clone, Debug, Default)]
pub(super) struct PlaceholderNames {
    placeholders: BTreeMap<String, String>,
    counts: BTreeMap<&'static str, usize>,
}

impl PlaceholderNames {
    /// Replaces all such texts of a value.
    pub(super) fn replace(&mut self, value: &mut Value) {
        self.learn(value);
        self.rewrite(value);
    }

    fn learn(&mut self, value: &Value) {
        match value {
            Value::Object(fields) => {
                self.learn_generated(value);
                fields.values().for_each(|value| self.learn(value));
            }
            Value::Array(items) => items.iter().for_each(|item| self.learn(item)),
            Value::String(text) => {
                for uid in uids(text) {
                    self.add(uid, "uid", "");
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn learn_generated(&mut self, object: &Value) {
        for (label, kind) in GENERATED_LABELS {
            if let Some(text) = object[label].as_str() {
                self.add(text, kind, "");
            }
        }
        let (prefix, name) = (object["generateName"].as_str(), object["name"].as_str());
        if let (Some(prefix), Some(name)) = (prefix, name)
            && name.strip_prefix(prefix).is_some_and(is_suffix)
        {
            self.add(name, "name", prefix);
        }
    }

    fn add(&mut self, text: &str, kind: &'static str, prefix: &str) {
        if !self.placeholders.contains_key(text) {
            let count = self.counts.entry(kind).or_default();
            *count += 1;
            self.placeholders
                .insert(text.to_owned(), format!("{prefix}<{kind} {count}>"));
        }
    }

    fn rewrite(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                let names: Vec<String> = fields
                    .keys()
                    .filter(|name| self.text(name) != **name)
                    .cloned()
                    .collect();
                for name in names {
                    let value = fields.remove(&name).unwrap_or_default();
                    fields.insert(self.text(&name), value);
                }
                fields.values_mut().for_each(|value| self.rewrite(value));
                if let Some(Value::Array(managers)) = fields.get_mut("managedFields") {
                    managers.sort_by_key(manager_order);
                }
                if let Some(token @ Value::String(_)) = fields.get_mut("continue") {
                    *token = "<continue>".into();
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.rewrite(item)),
            Value::String(text) => *text = time(text).unwrap_or_else(|| self.text(text)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn text(&self, text: &str) -> String {
        let mut found: Vec<(&String, &String)> = self
            .placeholders
            .iter()
            .filter(|(own, _)| text.contains(own.as_str()))
            .collect();
        found.sort_by_key(|(own, _)| std::cmp::Reverse(own.len()));
        let mut text = text.to_owned();
        for (own, placeholder) in found {
            text = text.replace(own.as_str(), placeholder);
        }
        text
    }
}

/// Returns a text by which items sort before their names are known: with equal placeholders for all generated texts.
pub(super) fn order_of(item: &Value) -> String {
    let mut names = PlaceholderNames::default();
    let mut item = item.clone();
    names.replace(&mut item);
    item.to_string()
}

/// Returns an order of managers that does not depend on their times.
fn manager_order(entry: &Value) -> [String; 3] {
    ["operation", "manager", "subresource"].map(|field| entry[field].as_str().unwrap_or_default().to_owned())
}

/// Reports whether a text is a generated suffix: five characters without vowels.
fn is_suffix(text: &str) -> bool {
    text.len() == 5
        && text
            .chars()
            .all(|one| "bcdfghjklmnpqrstvwxz2456789".contains(one))
}

/// Returns the UIDs in a text.
fn uids(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |one: char| one.is_ascii_hexdigit() || one == '-';
    text.split(move |one| !is_part(one)).filter(|part| {
        let lengths: Vec<usize> = part.split('-').map(str::len).collect();
        lengths == [8, 4, 4, 4, 12]
    })
}

/// Returns the placeholder of a time, with the number of digits of its fraction.
fn time(text: &str) -> Option<String> {
    let time: jiff::Timestamp = text.parse().ok()?;
    if time.to_zoned(jiff::tz::TimeZone::UTC).year() < FIRST_OWN_YEAR {
        return None;
    }
    let digits = text.split_once('.').map_or(0, |(_, fraction)| fraction.len() - 1);
    Some(if digits == 0 {
        "<time>".to_owned()
    } else {
        format!("<time with {digits} digits>")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn equal_texts_have_equal_placeholders_in_the_order_of_their_appearance() {
        let (first, second) = (
            "0e9cf0ac-5a03-4f6c-8fd0-3f4be9a0a4f6",
            "1e9cf0ac-5a03-4f6c-8fd0-3f4be9a0a4f6",
        );
        let mut value = json!({"a": format!("UID in precondition: {first}, found {second}"), "b": second,
            "c": {"generateName": "web-", "name": "web-bcd2z"}, "d": "pod web-bcd2z", "e": "2026-11-30T10:00:00Z",
            "f": "2020-01-01T00:00:00Z", "g": "2026-11-30T10:00:00.123456Z"});
        PlaceholderNames::default().replace(&mut value);
        assert_eq!(
            value,
            json!({"a": "UID in precondition: <uid 1>, found <uid 2>", "b": "<uid 2>",
            "c": {"generateName": "web-", "name": "web-<name 1>"}, "d": "pod web-<name 1>", "e": "<time>",
            "f": "2020-01-01T00:00:00Z", "g": "<time with 6 digits>"})
        );
    }
}
