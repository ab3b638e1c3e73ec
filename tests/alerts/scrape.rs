//! Compares the rules and panels with the metrics of a real operator on real masters, and of a real node agent.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::common::metrics::{Families, assert_documented, documented, scraped};
use crate::names;
use crate::promtool::promtool;
use crate::replica::{BOUND, Folder, Replica, seal, servers_with};
use crate::shipped::{RULES, alerts, expressions, path, recorded};
use redlock_testkit::{Persistence, RedisServer, ServerOptions, eventually_blocking};

/// The labels that Prometheus and its discovery add.
const OF_PROMETHEUS: [&str; 5] = ["job", "instance", "namespace", "cluster", "le"];

/// The pages that describe all metrics, with their labels. Tests compare them with scrapes of operators and of a node agent.
const PAGES: [&str; 2] = ["docs/monitoring.md", "docs/fencing.md"];

struct Stage {
    masters: Vec<RedisServer>,
    replica: Replica,
    _folder: Folder,
}

/// Starts one operator that holds one lock, on three masters without problems.
async fn stage() -> Stage {
    let persistence = Persistence::Aof;
    let masters = servers_with(
        3,
        &ServerOptions {
            persistence,
            ..ServerOptions::default()
        },
    );
    seal(&masters, redlock::masters::Credentials::default()).await;
    // The operator follows its folder: a folder that is removed declares nothing.
    let folder = Folder::with(&masters, &["a"]);
    let replica = Replica::start("one", &folder);
    replica.wait_active("a");
    Stage {
        masters,
        replica,
        _folder: folder,
    }
}

impl Stage {
    /// Waits for a scrape with lines that begin with each of these.
    fn scrape(&self, wanted: &[&str]) -> String {
        eventually_blocking(BOUND, &format!("a scrape with {wanted:?}"), || {
            let (status, body) = self.replica.get("/metrics");
            assert_eq!(status, 200, "{body}");
            let has = |start: &&str| body.lines().any(|line| line.starts_with(*start));
            if wanted.iter().all(has) {
                Ok(body)
            } else {
                Err(body)
            }
        })
    }
}

/// Returns the types of the families in a scrape.
fn types(scrape: &str) -> BTreeMap<&str, &str> {
    let types = scrape
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    types.collect()
}

#[tokio::test]
async fn every_metric_and_label_that_is_used_is_one_that_the_binary_gives() {
    let stage = stage().await;
    // This family is the last one of the operator that an event creates.
    let scrape = stage.scrape(&["redlock_renewals_total{"]);
    promtool(&["check", "metrics"], &scrape);
    let page = PAGES[0];
    assert_documented(&scrape, page);
    let names = |families: Families| families.into_keys().collect::<BTreeSet<_>>();
    assert_eq!(names(documented(page)), names(scraped(&scrape)), "{page}");

    let types = types(&scrape);
    let described: Families = PAGES.into_iter().flat_map(documented).collect();
    let (recorded, mut labels) = (
        recorded(),
        OF_PROMETHEUS
            .map(str::to_owned)
            .into_iter()
            .collect::<BTreeSet<_>>(),
    );
    labels.extend(described.values().flatten().cloned());
    for (owner, expression) in expressions() {
        let metrics = names::metrics(&expression);
        assert!(!metrics.is_empty(), "{owner} reads nothing: {expression}");
        for metric in metrics {
            let of_histogram = ["_bucket", "_sum", "_count"].iter().any(|end| {
                let family = metric.strip_suffix(end).unwrap_or_default();
                described.contains_key(family)
            });
            let known = metric == "up"
                || recorded.contains(&metric)
                || types.contains_key(&*metric)
                || described.contains_key(&metric);
            assert!(known || of_histogram, "{owner}: {metric} is in no scrape");
        }
        for label in names::labels(&expression) {
            assert!(labels.contains(&label), "{owner}: no metric has a label {label}");
        }
    }
}

/// Returns a case in which this scrape is repeated for a quarter of an hour, and each of these alerts fires this many
/// times.
fn case(name: &str, scrape: &str, firing: &[(&str, u32)]) -> Value {
    let samples = scrape.lines().filter(|line| !line.starts_with('#'));
    let series = |line: &str| {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let series = match series.strip_suffix('}') {
            Some(labels) => format!("{labels},instance=\"one\"}}"),
            None => format!("{series}{{instance=\"one\"}}"),
        };
        json!({"series": series, "values": format!("{value}x30")})
    };
    let fired = |(alert, count): &(&str, u32)| {
        assert!(alerts().contains(*alert), "{alert}");
        json!({"labels": format!("{{alertname=\"{alert}\"}}"), "value": count})
    };
    json!({
        "name": name,
        "interval": "30s",
        "input_series": samples.map(series).collect::<Vec<_>>(),
        "promql_expr_test": [{
            "expr": "count by (alertname) (ALERTS{alertstate=\"firing\"})",
            "eval_time": "15m",
            "exp_samples": firing.iter().map(fired).collect::<Vec<_>>(),
        }],
    })
}

#[tokio::test]
async fn the_rules_evaluate_a_real_scrape_correctly() {
    let stage = stage().await;
    let sealed = |count: u32| format!("redlock_quorum_masters_sealed{{quorum=\"default\"}} {count}");
    let down = |master: &str| format!("redlock_master_up{{quorum=\"default\",master=\"{master}\"}} 0");
    let well = stage.scrape(&[&sealed(3)]);
    stage.masters[0].kill();
    let fewer = stage.scrape(&[&sealed(2), &down("m0")]);
    stage.masters[1].kill();
    let granting = "redlock_quorum_masters_granting{quorum=\"default\"} 1";
    let lost = stage.scrape(&[&sealed(1), granting, &down("m0"), &down("m1")]);

    let cases = json!({
        "rule_files": [path(RULES)],
        "evaluation_interval": "30s",
        "tests": [
            case("all is well", &well, &[]),
            case("a master is gone", &fewer, &[("MasterDown", 1), ("QuorumAtEdge", 1)]),
            case("two of three are gone", &lost, &[("MasterDown", 2), ("QuorumLost", 1)]),
        ],
    });
    let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    serde_json::to_writer(&file, &cases).unwrap();
    promtool(&["test", "rules", file.path().to_str().unwrap()], "");
}
