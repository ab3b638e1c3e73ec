use proptest::prelude::*;

use super::*;

const LOCK: &str = "apiVersion: redlock.dev/v1alpha1\nkind: LeaderLock\n\
                    metadata: {name: report, namespace: billing}\nspec: {quorumRef: {name: default}}\n";

fn shown(text: &str) -> (usize, Vec<String>) {
    let parsed = parse("f.yaml", text.as_bytes());
    (
        parsed.documents.len(),
        parsed.problems.iter().map(ToString::to_string).collect(),
    )
}

#[test]
fn documents_are_counted_as_people_count_them() {
    let parsed = parse(
        "f.yaml",
        format!("# locks\n---\n{LOCK}---\n---\n{LOCK}---\n").as_bytes(),
    );
    assert_eq!(parsed.problems, []);
    let places: Vec<usize> = parsed.documents.iter().map(|d| d.place.document).collect();
    assert_eq!(places, [1, 3]);
    assert_eq!(
        parsed.documents[0].place.object.as_deref(),
        Some("LeaderLock billing/report")
    );
    for nothing in ["", "\n", "# only a comment\n", "---\n", "\u{feff}"] {
        assert_eq!(shown(nothing), (0, vec![]), "{nothing:?}");
    }
    assert_eq!(
        shown(&format!("\u{feff}{LOCK}")).0,
        1,
        "a byte order mark is no text"
    );
}

#[test]
fn each_bad_document_is_named_and_the_others_are_used() {
    let bad = LOCK.replace("quorumRef", "quorumref");
    let (read, problems) = shown(&format!("{LOCK}---\n{bad}---\n{LOCK}"));
    assert_eq!(read, 2);
    assert_eq!(problems.len(), 1);
    assert!(
        problems[0].starts_with("f.yaml, document 2 (LeaderLock billing/report): "),
        "{problems:?}"
    );
    assert!(problems[0].contains("quorumRef"), "{problems:?}");
}

#[test]
fn unknown_fields_are_named_wherever_they_stand() {
    let text = "apiVersion: redlock.dev/v1alpha1
kind: RedisQuorum
metadata: {name: default, lables: {a: b}}
spec:
  masters:
  - {name: a, url: redis://a}
  - {name: b, url: redis://b, failuredomain: x}
  auth: {secretRef: {name: n, namespace: m, key: k}}
  maxLeaseDuration: 60
extra: 1
";
    let problems = parse("f.yaml", text.as_bytes()).problems;
    let mut fields: Vec<&str> = problems.iter().filter_map(|p| p.field.as_deref()).collect();
    fields.sort_unstable();
    assert_eq!(
        fields,
        [
            "extra",
            "metadata.lables",
            "spec.auth.secretRef.key",
            "spec.masters[1].failuredomain",
            "spec.maxLeaseDuration"
        ]
    );
    assert_eq!(
        problems[0].to_string(),
        "f.yaml, document 1 (RedisQuorum default), metadata.lables: is not a field of this kind: remove it or \
            correct its spelling"
    );
}

#[test]
fn foreign_objects_are_named() {
    let table = [
        (
            "kind: Deployment\napiVersion: apps/v1\n",
            "document 1 (Deployment): is a Deployment of apps/v1: only RedisQuorum",
        ),
        (
            "kind: LeaderLock\napiVersion: redlock.dev/v1\n",
            "is a LeaderLock of redlock.dev/v1: only",
        ),
        (
            "kind: LeaderLock\n",
            "document 1 (LeaderLock), apiVersion: is missing",
        ),
        (
            "apiVersion: redlock.dev/v1alpha1\n",
            "document 1, kind: is missing",
        ),
        (
            "apiVersion: 1\nkind: LeaderLock\n",
            "apiVersion: is missing or not a string",
        ),
        ("[1, 2]\n", "document 1: is not an object"),
        ("just text\n", "document 1: is not an object"),
    ];
    for (text, wanted) in table {
        let (read, problems) = shown(text);
        assert_eq!((read, problems.len()), (0, 1), "{text}");
        assert!(problems[0].contains(wanted), "{text}: {problems:?}");
    }
}

#[test]
fn lists_hold_their_objects() {
    let item = LOCK.replace('\n', "\n  ");
    let text = format!(
        "apiVersion: v1\nkind: List\nmetadata: {{resourceVersion: \"\"}}\nitems:\n- {item}\n- {item}"
    );
    let parsed = parse("f.yaml", text.as_bytes());
    assert_eq!(parsed.problems, []);
    let objects: Vec<_> = parsed
        .documents
        .iter()
        .map(|d| d.place.object.as_deref())
        .collect();
    assert_eq!(objects, [Some("LeaderLock billing/report"); 2]);

    let typed = "apiVersion: redlock.dev/v1alpha1\nkind: LeaderLockList\nitems: [{metadata: {name: report}, spec: \
                 {quorumRef: {name: default}}}]\n";
    assert_eq!(shown(typed), (1, vec![]));
    for nothing in [
        "apiVersion: v1\nkind: List\n",
        "apiVersion: v1\nkind: List\nitems: []\n",
    ] {
        assert_eq!(shown(nothing), (0, vec![]));
    }
    for (items, wanted) in [
        ("5", "document 1 (List), items: is not a list of objects"),
        ("[5]", "document 1 (items[0]): is not an object"),
        (
            "[{kind: Secret, apiVersion: v1}]",
            "(Secret): is a Secret of v1: only RedisQuorum",
        ),
        (
            "[{kind: List, apiVersion: v1}]",
            "(List): is a List of v1: only RedisQuorum",
        ),
        (
            "[{apiVersion: redlock.dev/v1alpha1, kind: LeaderLock, metadata: {name: a}, spec: {quorumRef: {name: q}, x: 1}}]",
            "document 1 (LeaderLock default/a), spec.x: is not a field",
        ),
    ] {
        let (read, problems) = shown(&format!("apiVersion: v1\nkind: List\nitems: {items}\n"));
        assert_eq!((read, problems.len()), (0, 1), "{items}: {problems:?}");
        assert!(problems[0].contains(wanted), "{items}: {problems:?}");
    }
}

#[test]
fn merge_keys_are_resolved() {
    let text = "apiVersion: redlock.dev/v1alpha1
kind: LeaderLock
metadata: {name: report}
spec:
  quorumRef: {name: default}
  targets:
  - &first {name: a, action: Scale, ref: {apiVersion: apps/v1, kind: Deployment, name: a}}
  - {<<: *first, name: b}
";
    let parsed = parse("f.yaml", text.as_bytes());
    assert_eq!(parsed.problems, []);
    let Object::Lock(lock) = &parsed.documents[0].object else {
        panic!("{:?}", parsed.documents);
    };
    let names: Vec<_> = lock
        .spec
        .targets
        .iter()
        .map(|target| target.name.as_str())
        .collect();
    assert_eq!(names, ["a", "b"]);
    // A text with the characters is no merge key.
    assert_eq!(
        shown(&LOCK.replace("spec: {", "spec: {reason: \"a << b\", ")),
        (1, vec![])
    );
    let (read, problems) = shown(&LOCK.replace("spec: {", "spec: {<<: 5, "));
    assert_eq!((read, problems.len()), (0, 1));
    assert!(
        problems[0].contains("document 1: is not valid YAML"),
        "{problems:?}"
    );
}

#[test]
fn json_is_read_with_tabs_and_several_objects() {
    let lock = "{\n\t\"apiVersion\": \"redlock.dev/v1alpha1\",\n\t\"kind\": \"LeaderLock\",\n\t\"metadata\": {\"name\": \
                \"report\"},\n\t\"spec\": {\"quorumRef\": {\"name\": \"default\"}}\n}\n";
    let json = |text: &str| {
        let parsed = parse("f.json", text.as_bytes());
        let problems: Vec<String> = parsed.problems.iter().map(ToString::to_string).collect();
        (parsed.documents.len(), problems)
    };
    assert_eq!(json(lock), (1, vec![]));
    assert_eq!(json(&format!("\u{feff}{lock}{lock}")), (2, vec![]));
    assert_eq!(json(""), (0, vec![]));
    let (read, problems) = json(&lock.replace("quorumRef", "quorumref"));
    assert_eq!(read, 0);
    assert!(
        problems[0].starts_with("f.json, document 1 (LeaderLock default/report): "),
        "{problems:?}"
    );
    let (_, problems) = json("{\"a\": ");
    assert!(
        problems[0].starts_with("f.json, document 1: is not valid JSON: "),
        "{problems:?}"
    );
    let (_, problems) = json(&"[".repeat(5_000));
    assert!(problems[0].contains("is not valid JSON"), "{problems:?}");
}

#[test]
fn wrong_types_and_broken_yaml_name_the_place() {
    let wrong = |from: &str, to: &str| LOCK.replace(from, to);
    let table = [
        (
            wrong("{name: default}", "default"),
            "spec.quorumRef: invalid type",
        ),
        (
            wrong("spec: {", "spec: {leaseDurationSeconds: 3s, "),
            "spec.leaseDurationSeconds: invalid type",
        ),
        (
            wrong("spec: {", "spec: {leaseDurationSeconds: 1.5, "),
            "spec.leaseDurationSeconds: invalid type",
        ),
        (
            wrong("spec: {", "spec: {state: enabled, "),
            "unknown variant `enabled`",
        ),
        (
            wrong("spec: {", "spec: {state: Enabled, state: Frozen, "),
            "duplicate",
        ),
        (wrong("spec: {", "spec: [{"), "is not valid YAML"),
        (wrong("kind:", "kind: *nobody\nx:"), "is not valid YAML"),
        ("a: [\n".into(), "is not valid YAML"),
        ("\tx: y\n".into(), "is not valid YAML"),
        ("a: !<tag:x> &b [*b]\n".into(), "document 1"),
    ];
    for (text, wanted) in table {
        let (read, problems) = shown(&text);
        assert_eq!((read, problems.len()), (0, 1), "{text}: {problems:?}");
        assert!(problems[0].contains(wanted), "{text}: {problems:?}");
        assert!(
            problems[0].starts_with("f.yaml, document 1") && !problems[0].contains('\n'),
            "{problems:?}"
        );
    }
}

#[test]
fn documents_around_broken_yaml_are_kept() {
    for broken in ["a: [", "a: *nobody", "a: 1\na: 2", "\"", "a: b: c", "\u{1}", "}"] {
        let (read, problems) = shown(&format!("{LOCK}---\n{broken}\n---\n{LOCK}"));
        assert_eq!((read, problems.len()), (2, 1), "{broken}: {problems:?}");
        assert!(
            problems[0].starts_with("f.yaml, document 2: is not valid YAML: "),
            "{problems:?}"
        );
    }
}

#[test]
fn lines_in_messages_are_lines_of_the_file() {
    let (_, problems) = shown(&format!("{LOCK}---\n{}", LOCK.replace("{name: default}", "1")));
    assert!(problems[0].contains("line 9 column"), "{problems:?}");
}

#[test]
fn a_file_that_is_no_text_is_a_problem_of_the_file() {
    let parsed = parse("f.yaml", b"ab\xff\xfe");
    assert_eq!(
        parsed.problems[0].to_string(),
        "f.yaml: is not UTF-8 text: byte 3 is not part of it"
    );
    assert_eq!(parsed.problems[0].document, 0);
}

#[test]
fn a_password_in_a_wrong_place_is_not_shown() {
    let (_, problems) = shown(&LOCK.replace("{name: default}", "'redis://u:hunter2@h'"));
    assert!(!problems.concat().contains("hunter2"), "{problems:?}");
}

#[test]
fn deep_nesting_and_repeated_aliases_are_refused_in_time() {
    let (read, problems) = shown(&format!("a: {}\n", "[".repeat(5_000)));
    assert_eq!((read, problems.len()), (0, 1));
    let (read, problems) = shown(&format!("a: {}{}\n", "[".repeat(5_000), "]".repeat(5_000)));
    assert_eq!((read, problems.len()), (0, 1));
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for i in 1..40 {
        let last = i - 1;
        bomb.push_str(&format!(
            "a{i}: &a{i} [*a{last}, *a{last}, *a{last}, *a{last}, *a{last}, *a{last}]\n"
        ));
    }
    assert_eq!(shown(&bomb).0, 0);
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        parse("f.yaml", &bytes);
    }

    #[test]
    fn no_broken_manifest_panics(
        cuts in proptest::collection::vec((any::<prop::sample::Index>(), "[\\PC\\n]{0,4}"), 1..6),
    ) {
        let mut text: Vec<char> = format!("{LOCK}---\n{LOCK}").chars().collect();
        for (at, with) in cuts {
            let at = at.index(text.len());
            let end = (at + 2).min(text.len());
            text.splice(at..end, with.chars());
        }
        let text: String = text.into_iter().collect();
        for problem in parse("f.yaml", text.as_bytes()).problems {
            prop_assert!(!problem.to_string().contains('\n'));
        }
    }
}
