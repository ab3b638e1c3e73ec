//! Tests the operator on a real API server, with the rights that the chart grants.

// Clippy's exemptions for tests cover test functions, not the helpers that they share.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

#[path = "kubernetes/adoption.rs"]
mod adoption;
#[path = "kubernetes/agent_examples.rs"]
mod agent_examples;
#[path = "kubernetes/agreement.rs"]
mod agreement;
#[path = "kubernetes/apply.rs"]
mod apply;
#[path = "kubernetes/author_check.rs"]
mod author_check;
#[path = "kubernetes/bad_input.rs"]
mod bad_input;
#[path = "kubernetes/blind_replica.rs"]
mod blind_replica;
#[path = "kubernetes/chart.rs"]
mod chart;
#[path = "kubernetes/client_go.rs"]
mod client_go;
#[path = "kubernetes/clusters.rs"]
mod clusters;
#[path = "kubernetes/commands.rs"]
mod commands;
mod common;
#[path = "kubernetes/conversations.rs"]
mod conversations;
#[path = "kubernetes/crds.rs"]
mod crds;
#[path = "kubernetes/cut_off.rs"]
mod cut_off;
#[path = "kubernetes/declared_delay.rs"]
mod declared_delay;
#[path = "kubernetes/deletion.rs"]
mod deletion;
#[path = "kubernetes/doctor_fencing.rs"]
mod doctor_fencing;
#[path = "kubernetes/election.rs"]
mod election;
#[path = "kubernetes/examples.rs"]
mod examples;
#[path = "kubernetes/fencing.rs"]
mod fencing;
#[path = "kubernetes/first_apply.rs"]
mod first_apply;
#[path = "kubernetes/first_start.rs"]
mod first_start;
#[path = "kubernetes/fixture.rs"]
mod fixture;
#[path = "kubernetes/guard.rs"]
mod guard;
#[path = "kubernetes/handed_on.rs"]
mod handed_on;
#[path = "kubernetes/in_use.rs"]
mod in_use;
#[path = "rules/judge.rs"]
mod judge;
#[path = "kubernetes/kubectl_environment.rs"]
mod kubectl_environment;
#[path = "kubernetes/label_pods.rs"]
mod label_pods;
#[path = "kubernetes/late_pod.rs"]
mod late_pod;
#[path = "kubernetes/leader_lease.rs"]
mod leader_lease;
#[path = "kubernetes/lease_fence.rs"]
mod lease_fence;
#[path = "kubernetes/leftovers.rs"]
mod leftovers;
#[path = "kubernetes/lifecycle.rs"]
mod lifecycle;
#[path = "kubernetes/many_jobs.rs"]
mod many_jobs;
#[path = "kubernetes/memory.rs"]
mod memory;
#[path = "kubernetes/metrics_access.rs"]
mod metrics_access;
#[path = "kubernetes/neighbours.rs"]
mod neighbours;
#[path = "kubernetes/node.rs"]
mod node;
#[path = "kubernetes/node_agent.rs"]
mod node_agent;
#[path = "kubernetes/node_vm.rs"]
mod node_vm;
#[path = "kubernetes/once_per_schedule.rs"]
mod once_per_schedule;
#[path = "kubernetes/outage.rs"]
mod outage;
#[path = "kubernetes/pages.rs"]
mod pages;
#[path = "kubernetes/patch.rs"]
mod patch;
#[path = "kubernetes/pauses.rs"]
mod pauses;
#[path = "kubernetes/pods.rs"]
mod pods;
#[allow(dead_code)]
#[path = "commands/program.rs"]
mod program;
#[path = "kubernetes/quorum_loss.rs"]
mod quorum_loss;
#[path = "kubernetes/remains.rs"]
mod remains;
#[path = "kubernetes/replicas.rs"]
mod replicas;
#[path = "kubernetes/rights.rs"]
mod rights;
#[path = "kubernetes/roles.rs"]
mod roles;
#[path = "kubernetes/rollout.rs"]
mod rollout;
#[path = "kubernetes/rotation.rs"]
mod rotation;
#[path = "kubernetes/rules.rs"]
mod rules;
#[path = "kubernetes/run.rs"]
mod run;
#[path = "kubernetes/server.rs"]
mod server;
#[path = "kubernetes/silent_connection.rs"]
mod silent_connection;
#[path = "kubernetes/standby_guard.rs"]
mod standby_guard;
#[path = "kubernetes/status_claims.rs"]
mod status_claims;
#[path = "kubernetes/stop_in_flight.rs"]
mod stop_in_flight;
#[path = "kubernetes/stop_times.rs"]
mod stop_times;
#[path = "kubernetes/surges.rs"]
mod surges;
#[path = "kubernetes/suspend.rs"]
mod suspend;
#[path = "rules/table.rs"]
mod table;
#[path = "kubernetes/tampering.rs"]
mod tampering;
#[path = "kubernetes/targets.rs"]
mod targets;
#[path = "kubernetes/two_clusters.rs"]
mod two_clusters;
#[path = "kubernetes/typed.rs"]
mod typed;
#[path = "kubernetes/unreadable.rs"]
mod unreadable;
#[path = "kubernetes/urls.rs"]
mod urls;
#[path = "kubernetes/versions.rs"]
mod versions;
#[path = "kubernetes/volumes.rs"]
mod volumes;
#[path = "kubernetes/warm_controller.rs"]
mod warm_controller;
#[path = "kubernetes/world.rs"]
mod world;
