//! Tests that the repository follows the rules of CONTRIBUTING.md. Only reads files, and needs only the
//! source.

// Clippy's exemptions for tests cover test functions, not the helpers that they share.
#![allow(unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "repository/api_reference.rs"]
mod api_reference;
#[path = "repository/build_docs.rs"]
mod build_docs;
#[path = "repository/build_image.rs"]
mod build_image;
#[path = "repository/build_kubernetes.rs"]
mod build_kubernetes;
#[path = "repository/chart_values.rs"]
mod chart_values;
#[path = "repository/comments.rs"]
mod comments;
#[path = "repository/files.rs"]
mod files;
#[path = "repository/generated.rs"]
mod generated;
#[path = "repository/install_buildah.rs"]
mod install_buildah;
#[path = "repository/install_lint_tools.rs"]
mod install_lint_tools;
#[path = "repository/install_servers.rs"]
mod install_servers;
#[path = "repository/install_tools.rs"]
mod install_tools;
#[path = "common/programs.rs"]
mod installed;
#[path = "repository/krew.rs"]
mod krew;
#[path = "repository/layers.rs"]
mod layers;
#[path = "repository/links.rs"]
mod links;
#[path = "repository/mutants.rs"]
mod mutants;
#[path = "repository/packages.rs"]
mod packages;
#[path = "common/pages.rs"]
#[allow(dead_code)]
mod pages;
#[path = "repository/pages.rs"]
mod pages_of_commands;
#[path = "repository/programs.rs"]
mod programs;
#[path = "repository/protocol.rs"]
mod protocol;
#[path = "repository/published.rs"]
mod published;
#[path = "repository/release.rs"]
mod release;
#[path = "repository/source.rs"]
mod source;
#[path = "repository/visible_text.rs"]
mod visible_text;
#[path = "repository/words.rs"]
mod words;
