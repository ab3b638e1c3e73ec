//! Node fencing: a pod of a fenced lock runs only by a permit of the masters of its lock.
//!
//! The decisions are in `redlock_core::fence`. This crate runs them on a node, without Kubernetes. The [`agent`] polls the
//! masters, and freezes, thaws and kills cgroups. The [`guardian`] is a process of its own that freezes by the [`table`] when
//! the agent cannot.

pub mod agent;
pub mod cgroup;
pub mod deadlines;
mod directories;
pub mod guardian;
pub mod kubelet;
pub mod realtime;
pub mod resolver;
pub mod spec;
pub mod table;
pub mod volume;
mod waker;
