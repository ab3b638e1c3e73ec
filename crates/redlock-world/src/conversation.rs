//! Recorded conversations with an API server: the requests of a client and the answers of a real API server.
//!
//! A conversation is played on a simulated cluster and on a real one ([`ConversationPlayer`]), and the answers of both are
//! compared with the record ([`differences`]). UIDs, resource versions, generated names and times are replaced by
//! placeholders that keep equality and order ([`names::PlaceholderNames`], [`versions`]).

mod differences;
mod format;
mod names;
mod play;
mod server;
mod simulated;
mod versions;

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use differences::{AnswerDifference, assert_no_differences, differences};
pub use play::{ConversationPlayer, PlayMode};
pub use server::{AnswerBody, CALLER, ConversationServer, ServerAnswer};
pub use simulated::SimulatedCluster;

/// A conversation, with the recorded answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conversation {
    pub about: String,
    /// Whether the controllers of kube-controller-manager run.
    pub controllers: bool,
    pub steps: Vec<ConversationStep>,
}

/// One step of a conversation.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConversationStep {
    /// The rule that the step shows.
    pub about: String,
    pub action: StepAction,
    /// The recorded answer: the status code and the body, or the events of a watch.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub answer: Value,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum StepAction {
    /// One request and its answer.
    Send(StepRequest),
    /// A read that is repeated until its answer is the recorded one and stays.
    Settle(StepRequest),
    /// Opens a watch of this name.
    Watch {
        name: String,
        path: String,
        query: String,
    },
    /// Reads this number of events from an open watch; all until its end without a number.
    Events { watch: String, count: Option<usize> },
}

/// A request. `{name/path}` in a text is replaced by that field of the answer that was saved under the name.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepRequest {
    pub method: String,
    pub path: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub query: String,
    /// The content type of a patch: `merge`, `json`, `strategic` or `apply`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub patch: String,
    /// Whether only the metadata of objects are wanted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub metadata_only: bool,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub body: Value,
    /// The name under which the body of the answer is saved.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub save: String,
    /// The JSON pointers of the fields of an object that are compared; all without a list. Of a list, those of its items.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields: Option<Vec<String>>,
}

/// A conversation and its file.
#[derive(Clone, Debug)]
pub struct ConversationFile {
    pub path: PathBuf,
    pub conversation: Conversation,
}

impl ConversationFile {
    /// Returns all recorded conversations, in the order of their names.
    ///
    /// # Panics
    ///
    /// Panics if a file cannot be read, or is not a conversation.
    pub fn all() -> Vec<Self> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conversations");
        let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
        paths.sort();
        assert!(!paths.is_empty(), "{} has no conversation", folder.display());
        paths.into_iter().map(Self::read).collect()
    }

    fn read(path: PathBuf) -> Self {
        let text = fs::read_to_string(&path).unwrap();
        let conversation =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self { path, conversation }
    }

    pub fn name(&self) -> String {
        self.path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    }

    /// Writes the file with these answers.
    ///
    /// # Panics
    ///
    /// Panics if the file cannot be written.
    pub fn record(&mut self, answers: Vec<Value>) {
        for (step, answer) in self.conversation.steps.iter_mut().zip(answers) {
            step.answer = answer;
        }
        let value = serde_json::to_value(&self.conversation).unwrap();
        fs::write(&self.path, format::document(&value)).unwrap();
    }
}
