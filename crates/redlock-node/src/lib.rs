//! Fences pods on a node: a pod of a fenced lock runs only by a permit of the masters of its lock.
//!
//! `redlock_core::fence` makes the decisions. This crate carries them out on a node, without Kubernetes. The
//! [`agent`] polls the masters, and freezes, thaws and kills cgroups. The [`guardian`] is a separate process
//! that freezes by the [`table`] if the agent cannot.

pub mod agent;
pub mod cgroup;
pub mod deadlines;
mod directories;
mod ending;
pub mod guardian;
pub mod kubelet;
pub mod listing;
pub mod realtime;
pub mod release;
pub mod resolver;
pub mod spec;
pub mod table;
pub mod volume;
mod waker;
