//! The rules of the settings of the action Patch. CEL cannot see its values, which are any JSON.

use kube::core::Rule;

use super::{LABEL_KEY, required, rule};
use crate::api::reasons;

/// One part of a path, as [`crate::api::pointer`] reads it.
const PART: &str = r"/([^~/,\\s[:cntrl:]]|~[01])+";
/// A list index somewhere in a path.
const INDEX: &str = "/([0-9]+|-)(/|$)";

fn is_path_below(field: &str, tops: &str) -> String {
    format!("self.{field}.matches('^{tops}({PART})+$') && !self.{field}.matches('{INDEX}')")
}

/// Of a target.
pub(in crate::api) fn patch_given() -> Rule {
    required(
        "patch",
        "self.action != 'Patch' || has(self.patch)",
        reasons::NO_PATCH,
    )
}

/// Of a target.
pub(in crate::api) fn patch_stop_given() -> Rule {
    required(
        "stopSeconds",
        "self.action != 'Patch' || has(self.stopSeconds)",
        reasons::NO_PATCH_STOP,
    )
}

/// Of the settings.
pub(in crate::api) fn fields_apart() -> Rule {
    rule(
        "fields",
        "self.fields.all(f, self.fields.filter(g, (g.path + '/').startsWith(f.path + '/')).size() == 1)",
        reasons::FIELDS_OVERLAP,
    )
}

/// Of the settings.
pub(in crate::api) fn annotations_need_trust() -> Rule {
    rule(
        "stoppedWhen",
        "!has(self.stoppedWhen) || self.stoppedWhen.size() == 0 || (has(self.trustStatusWithoutGeneration) && \
         self.trustStatusWithoutGeneration) || self.fields.all(f, !f.path.startsWith('/metadata/'))",
        reasons::ANNOTATION_TRUST,
    )
}

pub(in crate::api) fn field_path() -> Rule {
    rule(
        "path",
        is_path_below("path", "/(spec|metadata/annotations)"),
        reasons::FIELD_PATH,
    )
}

/// The key of an annotation follows the grammar of the key of a label.
pub(in crate::api) fn annotation_path() -> Rule {
    let key = LABEL_KEY.trim_start_matches('^').replace(")*/)?(", ")*~1)?(");
    rule(
        "path",
        format!(
            "!self.path.startsWith('/metadata/annotations/') || (self.path.matches('^/metadata/annotations/{key}') && \
             !self.path.matches('^/metadata/annotations/(redlock\\\\.dev|kubectl\\\\.kubernetes\\\\.io)~1'))"
        ),
        reasons::ANNOTATION_PATH,
    )
}

pub(in crate::api) fn check_path() -> Rule {
    rule(
        "path",
        format!("!has(self.path) || ({})", is_path_below("path", "/status")),
        reasons::CHECK_PATH,
    )
}

pub(in crate::api) fn one_check() -> Rule {
    rule(
        "path",
        "has(self.path) != has(self.condition)",
        reasons::ONE_CHECK,
    )
}

pub(in crate::api) fn condition_status() -> Rule {
    rule(
        "status",
        "has(self.condition) == has(self.status)",
        reasons::CONDITION_STATUS,
    )
}

pub(in crate::api) fn condition_reason() -> Rule {
    rule(
        "reason",
        "has(self.condition) || !has(self.reason)",
        reasons::CONDITION_REASON,
    )
}
