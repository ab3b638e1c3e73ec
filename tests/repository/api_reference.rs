//! Tests the reference of the fields, which is written from the definitions in `crds/`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{generated, source::ROOT};

const PAGE: &str = "docs/api.md";

struct Row<'a> {
    path: String,
    schema: &'a Value,
    required: bool,
}

fn fields<'a>(path: &str, schema: &'a Value, rows: &mut Vec<Row<'a>>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        let required = schema["required"].as_array();
        rows.push(Row {
            path: path.clone(),
            schema: field,
            required: required.is_some_and(|names| names.iter().any(|other| other == name)),
        });
        // Kubernetes documents its own fields.
        if !["conditions", "selector"].contains(&name.as_str()) {
            fields(&path, field, rows);
            fields(&format!("{path}[]"), &field["items"], rows);
        }
    }
}

fn bounds(schema: &Value, least: &str, most: &str) -> Option<String> {
    let number = |key: &str| schema[key].as_f64();
    match (number(least), number(most)) {
        (Some(least), Some(most)) => Some(format!("{least} to {most}")),
        (Some(least), None) => Some(format!("from {least}")),
        (None, Some(most)) => Some(format!("up to {most}")),
        (None, None) => None,
    }
}

/// Returns the allowed values.
fn kind(schema: &Value) -> String {
    if schema["type"].is_null() && schema["x-kubernetes-preserve-unknown-fields"] == true {
        return "any value".into();
    }
    let name = schema["type"].as_str().unwrap_or("object");
    let words = schema["enum"].as_array().map(|words| {
        let words: Vec<String> = words
            .iter()
            .map(|word| format!("`{}`", word.as_str().unwrap()))
            .collect();
        words.join(", ")
    });
    match (name, words) {
        (_, Some(words)) => words,
        ("array", None) => {
            let count = bounds(schema, "minItems", "maxItems").map(|count| format!("{count} × "));
            format!(
                "{}{}",
                count.unwrap_or_else(|| "list of ".into()),
                kind(&schema["items"])
            )
        }
        ("string", None) if schema["format"] == "date-time" => "time".into(),
        ("string", None) => match bounds(schema, "minLength", "maxLength") {
            Some(length) => format!("text, {length} characters"),
            None => "text".into(),
        },
        ("integer", None) => match bounds(schema, "minimum", "maximum") {
            Some(range) => format!("integer, {range}"),
            None => "integer".into(),
        },
        (other, None) => other.into(),
    }
}

fn table(top: &str, schema: &Value) -> String {
    let mut rows = Vec::new();
    fields(top, &schema["properties"][top], &mut rows);
    let mut text = "| field | may be | is |\n|---|---|---|\n".to_owned();
    for row in &rows {
        let description = row.schema["description"].as_str().unwrap_or_default();
        let description = description
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
            .replace('|', "\\|");
        // The fields of a status describe what the operator writes.
        let must = if top == "spec" && row.required {
            "**Required.** "
        } else {
            ""
        };
        writeln!(
            text,
            "| `{}` | {} | {must}{description} |",
            row.path,
            kind(row.schema)
        )
        .unwrap();
    }
    text
}

/// Collects the messages of the rules for refused values, by the field of the rule.
fn refusals(path: &str, schema: &Value, found: &mut Vec<String>) {
    for rule in schema["x-kubernetes-validations"]
        .as_array()
        .into_iter()
        .flatten()
    {
        let field = rule["fieldPath"].as_str().unwrap_or_default();
        let message = rule["message"].as_str().map_or_else(
            || {
                rule["messageExpression"]
                    .as_str()
                    .unwrap()
                    .replace('\'', "")
                    .replace(" + ", "")
            },
            str::to_owned,
        );
        found.push(format!("- `{path}{field}` {message}"));
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        refusals(&format!("{path}.{name}"), field, found);
        refusals(&format!("{path}.{name}[]"), &field["items"], found);
    }
}

fn reference(file: &str) -> String {
    let text = fs::read_to_string(Path::new(ROOT).join("crds").join(file)).unwrap();
    let definition: Value = serde_yaml::from_str(&text).unwrap();
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let mut refused = Vec::new();
    refusals("spec", &schema["properties"]["spec"], &mut refused);
    format!(
        "{}\nValidation messages:\n\n{}\n\n{}",
        table("spec", schema),
        refused.join("\n"),
        table("status", schema)
    )
}

#[test]
fn the_reference_of_the_fields_is_up_to_date() {
    generated::part(
        PAGE,
        "fields of a LeaderLock",
        &reference("redlock.dev_leaderlocks.yaml"),
    );
    generated::part(
        PAGE,
        "fields of a RedisQuorum",
        &reference("redlock.dev_redisquorums.yaml"),
    );
}

#[test]
fn a_field_lists_its_allowed_values() {
    let schema = serde_json::json!({"properties": {"spec": {"required": ["b"], "properties": {
        "a": {"type": "integer", "minimum": 2.0, "maximum": 9.0, "description": "Of a | b,\n  in seconds."},
        "b": {"type": "array", "maxItems": 3, "items": {"type": "object", "required": ["c"], "properties": {
            "c": {"type": "string", "enum": ["X", "Y"], "description": "One."}}}},
    }}}});
    assert_eq!(
        table("spec", &schema),
        "| field | may be | is |\n|---|---|---|\n\
         | `spec.a` | integer, 2 to 9 | Of a \\| b, in seconds. |\n\
         | `spec.b` | up to 3 × object | **Required.**  |\n\
         | `spec.b[].c` | `X`, `Y` | **Required.** One. |\n"
    );
}
