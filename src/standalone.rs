//! `redlock operator --standalone DIR`: the same objects as YAML files, no Kubernetes.

pub mod manifests;
