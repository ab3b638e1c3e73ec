//! Writes the two CustomResourceDefinitions, as `redlock crd` prints them and as the files in `crds/` hold them.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;

use super::{LeaderLock, RedisQuorum};

/// A definition could not be written as YAML.
#[derive(Debug, thiserror::Error)]
#[error("writing the definition of {kind} as yaml")]
pub struct CrdError {
    kind: &'static str,
    source: serde_yaml::Error,
}

/// Returns both definitions, one document each.
pub fn crds_yaml() -> Result<String, CrdError> {
    Ok(format!(
        "---\n{}---\n{}",
        leader_lock_crd_yaml()?,
        redis_quorum_crd_yaml()?
    ))
}

/// Returns the definition of `LeaderLock`.
pub fn leader_lock_crd_yaml() -> Result<String, CrdError> {
    to_yaml("LeaderLock", LeaderLock::crd())
}

/// Returns the definition of `RedisQuorum`.
pub fn redis_quorum_crd_yaml() -> Result<String, CrdError> {
    to_yaml("RedisQuorum", RedisQuorum::crd())
}

fn to_yaml(kind: &'static str, mut crd: CustomResourceDefinition) -> Result<String, CrdError> {
    mark_unvisited(&mut crd);
    for version in &mut crd.spec.versions {
        let schema = version
            .schema
            .as_mut()
            .and_then(|s| s.open_api_v3_schema.as_mut());
        schema.into_iter().for_each(without_nulls);
    }
    serde_yaml::to_string(&crd).map_err(|source| CrdError { kind, source })
}

/// Gives new objects `status.observedGeneration: -1`, so that a client that waits for `Ready` does not take an object
/// that was never reconciled for a current one.
fn mark_unvisited(crd: &mut CustomResourceDefinition) {
    for version in &mut crd.spec.versions {
        let status = version
            .schema
            .as_mut()
            .and_then(|s| s.open_api_v3_schema.as_mut())
            .and_then(|s| s.properties.as_mut())
            .and_then(|p| p.get_mut("status"));
        if let Some(status) = status {
            status.default = Some(JSON(serde_json::json!({ "observedGeneration": -1 })));
        }
    }
}

/// Removes every `nullable`, as most kinds do, so that no rule has to check whether a field that is present is `null`.
/// The API server drops a `null` in an object that is created or updated as a whole; server-side apply refuses it by
/// name.
fn without_nulls(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    for field in schema.properties.iter_mut().flat_map(BTreeMap::values_mut) {
        without_nulls(field);
    }
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => without_nulls(items),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(without_nulls),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(more)) = &mut schema.additional_properties {
        without_nulls(more);
    }
}

#[cfg(test)]
mod bounds;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::Value;

    use super::*;

    fn parsed(yaml: &str) -> Value {
        serde_yaml::from_str(yaml).unwrap()
    }

    fn schema(yaml: &str) -> Value {
        parsed(yaml)["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
    }

    /// Returns the definitions as a template, because Helm never upgrades the files in the folder `crds/` of a chart.
    fn of_the_chart() -> String {
        let crds = crds_yaml().unwrap();
        assert!(!crds.contains("{{"), "a template would read it");
        let labelled = crds.replace(
            "\nmetadata:\n",
            "\nmetadata:\n  labels:\n    {{- include \"redlock-operator.labels\" . | nindent 4 }}\n  \
             {{- if .Values.crds.keep }}\n  annotations:\n    helm.sh/resource-policy: keep\n  {{- end }}\n",
        );
        format!(
            "{{{{- /* Written by `make generate`. */ -}}}}\n{{{{- include \"redlock-operator.values\" . -}}}}\n\
             {{{{- if .Values.crds.install }}}}\n{labelled}{{{{- end }}}}\n"
        )
    }

    #[test]
    fn the_crd_files_match_the_types() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        for (file, wanted) in [
            (
                "crds/redlock.dev_leaderlocks.yaml",
                leader_lock_crd_yaml().unwrap(),
            ),
            (
                "crds/redlock.dev_redisquorums.yaml",
                redis_quorum_crd_yaml().unwrap(),
            ),
            ("charts/redlock-operator/templates/crds.yaml", of_the_chart()),
        ] {
            let path = root.join(file);
            if std::env::var_os("REDLOCK_REGENERATE").is_some() {
                std::fs::write(&path, &wanted).unwrap();
            }
            let found = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(
                found == wanted,
                "{file} is out of date: run the tests with REDLOCK_REGENERATE=1"
            );
        }
    }

    #[test]
    fn both_definitions_are_printed_as_two_documents() {
        let yaml = crds_yaml().unwrap();
        let names: Vec<String> = serde_yaml::Deserializer::from_str(&yaml)
            .map(|d| <Value as serde::Deserialize>::deserialize(d).unwrap()["metadata"]["name"].to_string())
            .collect();
        assert_eq!(
            names,
            ["\"leaderlocks.redlock.dev\"", "\"redisquorums.redlock.dev\""]
        );
    }

    #[test]
    fn kubectl_shows_the_important_columns() {
        let crd = parsed(&leader_lock_crd_yaml().unwrap());
        let columns: Vec<&str> = crd["spec"]["versions"][0]["additionalPrinterColumns"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| c["name"].as_str().unwrap())
            .collect();
        assert_eq!(
            columns,
            ["Ready", "Role", "Holder", "Reason", "Token", "Transitions", "Age"]
        );
        let columns = &crd["spec"]["versions"][0]["additionalPrinterColumns"];
        assert_eq!(
            (&columns[4]["priority"], &columns[5]["priority"]),
            (&1.into(), &1.into())
        );
        assert_eq!(crd["spec"]["names"]["shortNames"], serde_json::json!(["ll"]));
        assert_eq!(crd["spec"]["names"]["categories"], serde_json::json!(["redlock"]));
        assert_eq!(crd["spec"]["scope"], "Namespaced");
        assert_eq!(
            parsed(&redis_quorum_crd_yaml().unwrap())["spec"]["scope"],
            "Cluster"
        );
    }

    #[test]
    fn locks_are_found_by_the_requests_of_the_operator() {
        let crd = parsed(&leader_lock_crd_yaml().unwrap());
        let paths: Vec<&str> = crd["spec"]["versions"][0]["selectableFields"]
            .as_array()
            .unwrap()
            .iter()
            .map(|field| field["jsonPath"].as_str().unwrap())
            .collect();
        assert_eq!(paths, [".spec.quorumRef.name", ".spec.candidates", ".spec.state"]);
    }

    #[test]
    fn a_new_object_shows_that_no_operator_has_read_it() {
        for yaml in [leader_lock_crd_yaml().unwrap(), redis_quorum_crd_yaml().unwrap()] {
            assert_eq!(
                schema(&yaml)["properties"]["status"]["default"],
                serde_json::json!({ "observedGeneration": -1 })
            );
            assert_eq!(
                parsed(&yaml)["spec"]["versions"][0]["subresources"],
                serde_json::json!({ "status": {} })
            );
        }
    }

    #[test]
    fn lists_of_named_things_are_maps_with_a_limit() {
        let spec = |yaml: &str| schema(yaml)["properties"]["spec"]["properties"].clone();
        let masters = spec(&redis_quorum_crd_yaml().unwrap())["masters"].clone();
        assert_eq!(masters["maxItems"], 7);
        assert_eq!(masters["x-kubernetes-list-map-keys"], serde_json::json!(["name"]));
        assert_eq!(masters["items"]["properties"]["url"]["maxLength"], 512);
        for yaml in [leader_lock_crd_yaml().unwrap(), redis_quorum_crd_yaml().unwrap()] {
            let conditions = schema(&yaml)["properties"]["status"]["properties"]["conditions"].clone();
            assert_eq!(conditions["x-kubernetes-list-type"], "map");
            assert_eq!(
                conditions["x-kubernetes-list-map-keys"],
                serde_json::json!(["type"])
            );
            let fields = &conditions["items"]["properties"];
            assert_eq!(fields["type"]["maxLength"], 316);
            assert_eq!(fields["reason"]["maxLength"], 1_024);
            assert_eq!(fields["message"]["maxLength"], 1_024);
            assert_eq!(fields["status"]["enum"].as_array().map(Vec::len), Some(3));
        }
        let targets = spec(&leader_lock_crd_yaml().unwrap())["targets"].clone();
        assert_eq!(targets["x-kubernetes-list-type"], "map");
        assert_eq!(targets["maxItems"], 32);
    }

    /// The API server refuses a schema that is not structural, and warns about formats that it does not know.
    #[test]
    fn schemas_are_structural_and_every_field_and_rule_explains_itself() {
        fn walk(schema: &Value, path: &str) {
            for word in ["oneOf", "anyOf", "allOf", "$ref", "$defs", "const", "nullable"] {
                assert!(schema.get(word).is_none(), "{path}: {word}");
            }
            for rule in schema["x-kubernetes-validations"]
                .as_array()
                .into_iter()
                .flatten()
            {
                let message = rule.get("message").or_else(|| rule.get("messageExpression"));
                assert!(message.is_some(), "{path}: {rule}");
                // A rule of a text is attached to its field, so it needs no path.
                let places = schema["type"] == "object";
                assert_eq!(rule.get("fieldPath").is_some(), places, "{path}: {rule}");
            }
            if let Some(format) = schema.get("format") {
                let known = ["int32", "int64", "date-time"];
                assert!(known.contains(&format.as_str().unwrap()), "{path}: {format}");
            }
            for (name, field) in schema["properties"].as_object().into_iter().flatten() {
                let path = format!("{path}.{name}");
                assert!(
                    field.get("description").is_some() || path == ".spec" || path == ".status",
                    "{path}"
                );
                walk(field, &path);
            }
            if let Some(items) = schema.get("items") {
                walk(items, &format!("{path}[]"));
            }
        }
        for yaml in [leader_lock_crd_yaml().unwrap(), redis_quorum_crd_yaml().unwrap()] {
            walk(&schema(&yaml), "");
        }
    }
}
