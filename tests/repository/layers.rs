//! Tests which part may import which other part.

use std::collections::BTreeSet;

use super::source::{Source, mentions, sources};

#[derive(Debug)]
pub struct Layer {
    pub package: &'static str,
    /// The modules of the package in this row.
    pub parts: &'static [&'static str],
    pub what: &'static str,
}

const fn layer(package: &'static str, parts: &'static [&'static str], what: &'static str) -> Layer {
    Layer { package, parts, what }
}

const OPERATOR: &str = "redlock-operator";

/// The rows from top to bottom: a part imports only from the rows below its own. Cargo enforces the order of
/// the packages, and these tests enforce the order of the parts of one package.
pub const LAYERS: &[Layer] = &[
    layer(OPERATOR, &["cli"], "arguments, exit codes"),
    layer(
        OPERATOR,
        &["node_agent"],
        "the agent of a node with the locks of the API server; has clients and events of the controller",
    ),
    layer(
        OPERATOR,
        &["standalone", "inspect", "controller", "agent", "run"],
        "one for each command",
    ),
    layer(OPERATOR, &["operator"], "what both forms of the operator share"),
    layer(OPERATOR, &["targets"], "one file an action"),
    layer(OPERATOR, &["telemetry"], "metrics, logs"),
    layer(OPERATOR, &["api"], "the types that users write"),
    layer(
        OPERATOR,
        &["http_server"],
        "HTTP for clients that may be hostile: bounded connections, time and sizes, on its own thread",
    ),
    layer(
        "redlock-node",
        &[],
        "node fencing: agent and guardian, the cgroups of pods and of contained commands",
    ),
    layer(
        "redlock-csi",
        &[],
        "the CSI driver of node fencing, as the kubelet calls it",
    ),
    layer(
        "redlock-demo",
        &[],
        "`redlock demo`: replicas and masters under real failures, and an observer",
    ),
    layer(
        "redlock-bench",
        &[],
        "the floor that measurements stand beside; `make bench`",
    ),
    layer(
        "redlock-world",
        &[],
        "the surroundings of the operator in memory and in virtual time: API server, controllers, masters, network",
    ),
    layer(
        "redlock-testkit",
        &[],
        "real Redis servers with fault injection; with the feature `harness` what tests need around them",
    ),
    layer(
        "redlock-client",
        &["elector"],
        "timers; runs the machine for many locks; publishes authority",
    ),
    layer(
        "redlock-client",
        &["masters"],
        "Redis: connections, scripts, rounds, batches, the seal",
    ),
    layer(
        "redlock-client",
        &["clock", "trace", "transport"],
        "the one file that reads the clock; the file of a trace; the way to other processes",
    ),
    layer(
        "redlock-core",
        &[],
        "the decision: timings, votes, validity, the state machine",
    ),
];

/// The one file that may read the clock.
const CLOCK: &str = "crates/redlock-client/src/clock.rs";
const READS_THE_CLOCK: [&str; 5] = [
    "Instant::now",
    "SystemTime::now",
    "Timestamp::now",
    "Zoned::now",
    "clock_gettime",
];
/// The packages that use Redis directly, to observe the others from outside.
const WATCHES_REDIS: [&str; 3] = ["redlock-bench", "redlock-demo", "redlock-testkit"];
/// Inputs other than arguments that would need no dependency.
const NOT_PURE: [&str; 6] = ["async", "await", "std::net", "std::fs", "std::env", "std::thread"];

fn rank(part: &str) -> usize {
    // Every part may import `lease`, as the other packages import redlock-core.
    if part == "lease" {
        return LAYERS.len();
    }
    LAYERS.iter().position(|layer| layer.parts.contains(&part)).unwrap_or_else(|| {
        panic!("the module {part} is in no layer; add it to LAYERS in tests/repository/layers.rs, below all that use it")
    })
}

/// Returns the part of a file; `None` for the root of a package, and for a package whose parts have no order.
fn part(source: &Source) -> Option<&str> {
    let module = source.module();
    let layers = LAYERS.iter().find(|layer| layer.package == source.package());
    let layered = layers.is_none_or(|layer| !layer.parts.is_empty());
    module.first().copied().filter(|_| layered)
}

fn check(what: &str, broken: impl Fn(&Source) -> Vec<String>) {
    let found: Vec<String> = sources()
        .iter()
        .flat_map(|source| {
            broken(source)
                .into_iter()
                .map(move |why| format!("{}: {why}", source.path))
        })
        .collect();
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}

fn forbidden(source: &Source, words: &[&str]) -> Vec<String> {
    words
        .iter()
        .filter(|word| mentions(&source.code, word))
        .map(|word| format!("mentions {word}"))
        .collect()
}

#[test]
fn imports_point_one_way() {
    check("a part imports from its own row or one above", |source| {
        let Some(own) = part(source) else {
            return Vec::new();
        };
        imports(source)
            .into_iter()
            .filter(|part| part != own && rank(part) <= rank(own))
            .collect()
    });
}

#[test]
fn every_part_has_its_row() {
    for source in sources() {
        let Some(part) = part(&source) else { continue };
        assert_eq!(LAYERS[rank(part)].package, source.package(), "{}", source.path);
    }
}

#[test]
fn the_program_is_the_command_line_and_no_more() {
    check("src/main.rs uses more than cli", |source| {
        if source.path != "src/main.rs" {
            return Vec::new();
        }
        imports(source).into_iter().filter(|part| part != "cli").collect()
    });
}

#[test]
fn the_decision_is_pure() {
    check("redlock-core depends on more than its arguments", |source| {
        if source.package() == "redlock-core" {
            forbidden(source, &NOT_PURE)
        } else {
            Vec::new()
        }
    });
}

#[test]
fn only_masters_speaks_redis() {
    check("the redis crate outside of masters", |source| {
        if part(source) == Some("masters") || WATCHES_REDIS.contains(&source.package()) {
            return Vec::new();
        }
        forbidden(source, &["redis::", "use redis"])
    });
}

#[test]
fn one_file_reads_the_clock() {
    check(&format!("the clock is read outside of {CLOCK}"), |source| {
        if source.path == CLOCK {
            Vec::new()
        } else {
            forbidden(source, &READS_THE_CLOCK)
        }
    });
}

#[test]
fn no_release_build_has_virtual_clocks() {
    check("the feature `virtual` without debug assertions", |source| {
        let guarded = source
            .code
            .replace(r#"all(feature = "virtual", debug_assertions)"#, "");
        let guarded = guarded.replace(r#"cfg(all(test, feature = "virtual"))"#, "");
        if guarded.contains(r#"feature = "virtual""#) {
            vec!["compiles code for `virtual` in a release build".to_owned()]
        } else {
            Vec::new()
        }
    });
}

/// Returns the parts of the package that a file names, also as `super::super::part`.
fn imports(source: &Source) -> BTreeSet<String> {
    let roots = ["crate::", "redlock::"];
    let mut found: BTreeSet<String> = roots
        .iter()
        .flat_map(|root| named_after(&source.code, root))
        .collect();
    let depth = source.module().len();
    if depth > 0 {
        found.extend(named_after(&source.code, &"super::".repeat(depth)).filter(|name| name != "super"));
    }
    found.retain(|name| name.starts_with(char::is_lowercase));
    found
}

/// Returns the first names after `path`, a single one or a group in braces.
fn named_after<'a>(code: &'a str, path: &'a str) -> impl Iterator<Item = String> + 'a {
    code.match_indices(path)
        .filter(|(at, _)| !code[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':'))
        .flat_map(move |(at, _)| first_names(&code[at + path.len()..]))
}

fn first_names(rest: &str) -> Vec<String> {
    let name = |text: &str| -> String {
        text.trim_start()
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect()
    };
    let Some(group) = rest.strip_prefix('{') else {
        return vec![name(rest)];
    };
    let mut depth = 1;
    let mut names = vec![name(group)];
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => names.push(name(&group[at + 1..])),
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

#[test]
fn imports_are_found_in_every_form() {
    let source = |path: &str, code: &str| Source {
        path: path.to_owned(),
        lines: 1,
        code: code.to_owned(),
        comments: String::new(),
    };
    let of = |path, code| imports(&source(path, code)).into_iter().collect::<Vec<_>>();
    assert_eq!(of("src/a/b.rs", "use crate::masters::Round;"), ["masters"]);
    assert_eq!(
        of(
            "src/a.rs",
            "use crate::{\n    api::{x, y},\n    lease::z,\n    Thing,\n};"
        ),
        ["api", "lease"]
    );
    assert_eq!(
        of("src/a/b.rs", "let x = super::super::elector::run();"),
        ["elector"]
    );
    assert_eq!(
        of("src/a/b.rs", "use super::sibling; use super::super::super::x;"),
        [""; 0]
    );
    assert_eq!(of("src/main.rs", "redlock::cli::main()"), ["cli"]);
}
