//! Tests the alerts and the dashboard of the chart with `promtool` and the metrics of a real operator, and their
//! pages.

// Clippy's exemptions for tests cover test functions, not the helpers that they share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

#[path = "alerts/cases.rs"]
mod cases;
#[path = "alerts/chart.rs"]
mod chart;
mod common;
#[path = "alerts/names.rs"]
mod names;
#[path = "alerts/pages.rs"]
mod pages;
#[path = "alerts/promtool.rs"]
mod promtool;
#[allow(dead_code)]
#[path = "operator/replica.rs"]
mod replica;
#[path = "alerts/scrape.rs"]
mod scrape;
#[path = "alerts/shipped.rs"]
mod shipped;
