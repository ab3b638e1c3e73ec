//! Builds an event within the limits of the API (events.k8s.io/v1): the API server refuses an event that exceeds one. Pure.

use k8s_openapi::{
    api::events::v1::Event,
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};

use super::{EventReason, EventRecord, Reporter};

/// Time, in seconds, within which an event that all replicas see is written only once.
const SHARED: i64 = 60;
/// The maximum length of the name of an object, in bytes.
const NAME: usize = 253;
/// The maximum length of a note, in bytes.
const NOTE: usize = 1_024;
/// The maximum length of the reporting instance, in bytes.
const INSTANCE: usize = 128;

/// Returns the event for this record.
pub(super) fn event(record: &EventRecord, namespace: &str, reporter: &Reporter, now: Timestamp) -> Event {
    let EventRecord { reason, object, note } = record;
    let name = object.name.clone().unwrap_or_default();
    Event {
        metadata: ObjectMeta {
            name: Some(event_name(&name, &suffix(record, now))),
            namespace: Some(namespace.to_owned()),
            ..ObjectMeta::default()
        },
        action: Some(reason.action().into()),
        reason: Some(reason.name().into()),
        type_: Some(if reason.is_warning() { "Warning" } else { "Normal" }.into()),
        note: Some(within(note, NOTE).to_owned()),
        event_time: Some(MicroTime(now)),
        regarding: Some(object.clone()),
        reporting_controller: Some(reporter.controller.into()),
        reporting_instance: Some(within(&reporter.instance, INSTANCE).to_owned()),
        ..Event::default()
    }
}

/// Returns the suffix of an event's name. Of two events about one object in one nanosecond, the second is
/// refused and dropped. An event about another writer's change has the same name in every replica, so that it
/// is written only once per target and minute, with the text of the first replica.
fn suffix(record: &EventRecord, now: Timestamp) -> String {
    if !matches!(
        record.reason,
        EventReason::StoppedAgain | EventReason::StartedAgain
    ) {
        return format!("{:x}", now.as_nanosecond());
    }
    let target = record.note.split_once(':').map_or("", |(target, _)| target);
    // The hash is the same in every replica.
    let hash = hash(&[record.reason.name(), target]);
    format!("{:x}.{hash:x}", now.as_second() / SHARED)
}

/// Returns the name of an event: that of the object and the suffix. Where both are too long for a name, a hash takes the
/// place of the end of the name of the object, so that two objects with the same beginning have different events.
fn event_name(object: &str, suffix: &str) -> String {
    let whole = format!("{object}.{suffix}");
    if whole.len() <= NAME {
        return whole;
    }
    let end = format!("-{:x}.{suffix}", hash(&[object]));
    // Each label of a name begins and ends with a letter or a digit.
    let beginning = within(object, NAME.saturating_sub(end.len())).trim_end_matches(['.', '-']);
    format!("{beginning}{end}")
}

/// Returns as much of the text as fits into this number of bytes.
fn within(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

/// Returns the hash FNV-1a of the texts.
fn hash(texts: &[&str]) -> u64 {
    let bytes = texts.iter().flat_map(|text| text.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ObjectReference;

    use super::*;

    #[test]
    fn two_replicas_that_see_the_hand_of_another_writer_write_one_event() {
        let record = |reason, note: &str| EventRecord {
            reason,
            object: Default::default(),
            note: note.to_owned(),
        };
        let at = |seconds: i64, nanos| Timestamp::new(SHARED * 1_000 + seconds, nanos).unwrap();
        let again = |note| record(EventReason::StoppedAgain, note);
        let first = suffix(&again("target a: scaled to 1 by kubectl"), at(1, 5));
        assert_eq!(
            first,
            suffix(&again("target a: scaled to 1 by somebody"), at(2, 7))
        );
        assert_ne!(
            first,
            suffix(&again("target b: scaled to 1 by kubectl"), at(1, 5))
        );
        assert_ne!(
            first,
            suffix(&again("target a: scaled to 1 by kubectl"), at(SHARED, 5))
        );
        let acquired = || record(EventReason::Acquired, "eu-1/a acquired the lock");
        assert_ne!(suffix(&acquired(), at(1, 5)), suffix(&acquired(), at(1, 6)));
    }

    /// Returns the event about an object of this name.
    fn about(name: &str, reason: EventReason, note: &str, instance: &str) -> Event {
        let record = EventRecord {
            reason,
            object: ObjectReference {
                name: Some(name.to_owned()),
                ..ObjectReference::default()
            },
            note: note.to_owned(),
        };
        let reporter = Reporter {
            controller: "redlock.dev/operator",
            instance: instance.to_owned(),
        };
        let now = Timestamp::new(1_796_000_000, 123_456_789).unwrap();
        event(&record, "default", &reporter, now)
    }

    /// Reports whether the API server accepts the name of an object: labels of letters, digits and `-`, joined by `.`.
    fn is_subdomain(name: &str) -> bool {
        let label = |label: &str| {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
            label.starts_with(plain) && label.ends_with(plain) && label.chars().all(|c| plain(c) || c == '-')
        };
        name.len() <= 253 && name.split('.').all(label)
    }

    #[test]
    fn names_of_every_length_get_events_with_valid_names() {
        for reason in [EventReason::Acquired, EventReason::StoppedAgain] {
            for length in 1..=253 {
                // Dots and dashes at each place where the name may be cut.
                for filler in ["a", "a-b.c", "a--b", "ab.c"] {
                    let mut name: String = filler.chars().cycle().take(length - 1).collect();
                    name.push('z');
                    if !is_subdomain(&name) {
                        continue;
                    }
                    let written = about(&name, reason, "target a: x", "me").metadata.name.unwrap();
                    assert!(is_subdomain(&written), "{length} of {filler}: {written}");
                    let whole = written.starts_with(&format!("{name}."));
                    assert!(whole || length > 225, "{length} of {filler}: {written}");
                }
            }
        }
    }

    #[test]
    fn long_names_with_the_same_beginning_stay_apart() {
        let name = |last: char| format!("{}{last}", "a".repeat(252));
        let written = |last| {
            about(&name(last), EventReason::StoppedAgain, "target a: x", "me")
                .metadata
                .name
        };
        assert_eq!(written('x'), written('x'), "each replica writes the same name");
        assert_ne!(written('x'), written('y'));
    }

    #[test]
    fn texts_are_cut_at_the_limits_of_the_api_which_count_bytes() {
        for text in ["a", "ä", "世", "🔒"] {
            let long = text.repeat(2_000);
            let event = about("a", EventReason::Acquired, &long, &long);
            let (note, instance) = (event.note.unwrap(), event.reporting_instance.unwrap());
            assert!((1_020..=1_024).contains(&note.len()), "{text}: {}", note.len());
            assert!(
                (124..=128).contains(&instance.len()),
                "{text}: {}",
                instance.len()
            );
        }
    }
}
