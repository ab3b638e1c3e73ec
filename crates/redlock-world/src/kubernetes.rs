//! The API server of a cluster, simulated in memory: storage, watches, field ownership and the failures of all of them.
//!
//! Requests of the operator arrive as HTTP ([`ApiServer::handle`]); users, controllers and observers of a world call the
//! same code paths directly ([`ApiServer::create`] and its siblings). The server reads no clock and draws random numbers
//! only from its seed, so one seed yields one run.
//!
//! Left out: CEL rules and `pattern` of a CRD (an [`AdmissionRule`] can stand in for them), conversion between versions,
//! unknown fields of built-in kinds (kept, not dropped), RBAC (an [`AdmissionRule`] refuses requests), most validation of
//! built-in kinds.

mod access;
mod admission;
mod compare;
mod content;
mod defaults;
mod delete;
mod direct;
mod discovery;
mod encode;
mod error;
mod events;
mod faults;
mod fields;
mod handle;
mod jobs;
mod list;
mod managed;
mod merge;
mod metadata;
mod object;
mod options;
mod path;
mod registry;
mod request;
mod resource;
mod reviews;
mod scale;
mod schema;
mod selector;
mod server;
mod shape;
mod snapshot;
mod state;
mod strategic;
mod typed;
mod validate;
mod verbs;
mod watch;
mod write;

pub use access::{CommittedWrite, Verb};
pub use admission::{AdmissionRefusal, AdmissionRequest, AdmissionRule, MutationRule};
pub use delete::{DeleteOptions, Propagation};
pub use error::ApiError;
pub use events::ObjectEvent;
pub use faults::{CallerFaults, Heal, LatencyRange, Partition, Refusal};
pub use handle::{ApiBody, ApiRequest, ApiResponse, Disconnected};
pub use object::ObjectKey;
pub use options::ApiOptions;
pub use registry::ResourceKind;
pub use resource::ResourceId;
pub use server::ApiServer;
pub use snapshot::ApiSnapshot;
pub use state::RequestCounts;
pub use watch::{WatchEnd, WatchStream};
pub use write::{Patch, Subresource, WriteOptions};

#[cfg(test)]
mod tests;
