//! The controllers of a cluster: workloads, pods and garbage.
