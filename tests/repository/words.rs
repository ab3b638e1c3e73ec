//! Tests that comments and the text that users read have no word that CONTRIBUTING.md bans.

use std::fs;
use std::path::Path;

use super::comments::comments;
use super::source::ROOT;
use super::visible_text::{Passage, passages};

/// Words that are wrong in any position, and what to write in their place.
const BANNED: [(&[&str], &str); 9] = [
    (
        &[
            "whoever",
            "somebody",
            "someone",
            "nobody",
            "everybody",
            "everyone",
            "anybody",
        ],
        "name the subject: the operator, the holder, a replica",
    ),
    (&["tell", "tells", "told", "telling"], "report, show, distinguish"),
    (&["say", "says", "said", "saying"], "report, state, name"),
    (&["mind", "minds", "minded"], "affect, matter to, remember"),
    (&["heed", "heeds", "heeded"], "follow, respect"),
    (&["look", "looks", "looked", "looking"], "check, read, inspect"),
    (&["go on", "goes on", "went on", "going on"], "continue"),
    (&["come of", "comes of", "came of"], "result from, follow from"),
    (
        &["hands are off", "is none", "are none"],
        "name the value that is missing or refused, and the expected one",
    ),
];

/// A clause that one of these opens has no named subject: `what is stored`, `who holds it`.
const SUBJECTS: [&str; 2] = ["what", "who"];
const VERBS: [&str; 26] = [
    "is", "are", "was", "were", "has", "have", "had", "does", "did", "can", "could", "must", "may", "will",
    "would", "comes", "goes", "holds", "needs", "remains", "runs", "stands", "stays", "takes", "wants",
    "writes",
];

/// A word in lower case, and whether a mark follows that ends a clause.
struct Word {
    text: String,
    ends: Option<char>,
}

fn words(text: &str) -> Vec<Word> {
    let pieces = text.split(|c: char| c.is_whitespace() || "()[]*—–".contains(c));
    pieces
        .filter(|piece| !piece.is_empty())
        .map(|piece| Word {
            text: piece
                .trim_end_matches(['.', ',', ':', ';', '?', '!'])
                .to_lowercase(),
            ends: piece.chars().last().filter(|c| ".,:;?!".contains(*c)),
        })
        .collect()
}

/// Returns each hit of a passage, as the words that were found.
fn hits(text: &str) -> Vec<String> {
    let words = words(text);
    (0..words.len())
        .filter_map(|at| banned_at(&words, at).or_else(|| subject_at(&words, at)))
        .collect()
}

fn banned_at(words: &[Word], at: usize) -> Option<String> {
    let phrases = BANNED.iter().flat_map(|(phrases, _)| *phrases);
    let mut found = phrases.filter(|phrase| {
        let count = phrase.split(' ').count();
        let Some(here) = words.get(at..at + count) else {
            return false;
        };
        let joined = here[..count - 1].iter().all(|word| word.ends.is_none());
        joined
            && phrase
                .split(' ')
                .zip(here)
                .all(|(wanted, word)| wanted == word.text)
    });
    found.next().map(|phrase| (*phrase).to_owned())
}

/// Returns the beginning of a clause without a named subject. A question is not a hit: in `what is stored?`,
/// the unknown is the subject.
fn subject_at(words: &[Word], at: usize) -> Option<String> {
    let (word, verb) = (&words[at], words.get(at + 1)?);
    let sentence = words[at..]
        .iter()
        .find_map(|word| word.ends.filter(|mark| ".?!".contains(*mark)));
    let subject = SUBJECTS.contains(&word.text.as_str()) && VERBS.contains(&verb.text.as_str());
    (subject && word.ends.is_none() && sentence != Some('?')).then(|| format!("{} {}", word.text, verb.text))
}

/// Returns the hits of all passages: the file, the words and the beginning of the passage.
fn found(passages: &[Passage]) -> Vec<String> {
    let of_passage = |passage: &Passage| -> Vec<String> {
        let place: Vec<&str> = passage.text.split_whitespace().take(16).collect();
        let place = place.join(" ");
        let hits = hits(&passage.text).into_iter();
        hits.map(|hit| format!("{}: {hit:?} in: {place}", passage.path))
            .collect()
    };
    passages.iter().flat_map(of_passage).collect()
}

fn assert_none_banned(passages: &[Passage]) {
    let found = found(passages);
    assert!(
        found.is_empty(),
        "CONTRIBUTING.md, \"How we write\", lists what to write instead:\n{}",
        found.join("\n")
    );
}

#[test]
fn text_for_users_has_no_banned_words() {
    assert_none_banned(&passages());
}

#[test]
fn comments_have_no_banned_words() {
    assert_none_banned(&comments());
}

#[test]
fn each_rule_finds_its_words_and_leaves_usual_sentences() {
    for (text, wanted) in [
        ("Whoever holds the lock renews it.", vec!["whoever"]),
        ("The log says so, and nobody reads it.", vec!["says", "nobody"]),
        ("The replica goes on.", vec!["goes on"]),
        ("What is stored stays.", vec!["what is"]),
        ("It depends on who holds it", vec!["who holds"]),
        ("log level § is none", vec!["is none"]),
        ("What is stored?", vec![]),
        (
            "The operator essays a lookup; it goes. On a failure it retries.",
            vec![],
        ),
        ("The holder writes what the master returned.", vec![]),
    ] {
        assert_eq!(hits(text), wanted, "{text}");
    }
}

#[test]
fn every_banned_word_stands_in_the_rules_of_the_project() {
    let rules = fs::read_to_string(Path::new(ROOT).join("CONTRIBUTING.md")).unwrap();
    let (_, rules) = rules.split_once("## How we write").unwrap();
    for (phrases, instead) in BANNED {
        assert!(
            rules.contains(phrases[0]) && rules.contains(instead),
            "{} | {instead}",
            phrases[0]
        );
    }
}

#[test]
fn hit_names_its_file_and_its_passage() {
    let passage = |text: &str| Passage {
        path: "a.md".into(),
        text: text.into(),
    };
    let found = found(&[passage("The replica waits."), passage("It says so.")]);
    assert_eq!(found, ["a.md: \"says\" in: It says so."]);
}
