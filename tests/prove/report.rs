//! Formats the table in Markdown.

use crate::outcome::Outcome;
use crate::plan::Played;
use crate::rows::{Promise, Row};

const HEAD: &str = "\
| what goes wrong | trials | last write before `valid_until`, ms: worst | median | from there to the next holder's first \
write, ms: median | longest | overlaps | tokens grow |
|---|---|---|---|---|---|---|---|
";
const HEAD_BY_TOKEN: &str = "\
| what goes wrong | trials | overlaps | writes after the next holder's first, all trials | last one after it, ms: worst \
| let in by the resource |
|---|---|---|---|---|---|
";

fn outcomes(played: &[Played], row: Row) -> Vec<&Outcome> {
    let of_row = played.iter().filter(|one| one.row == row);
    of_row.filter_map(|one| one.outcome.as_ref().ok()).collect()
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

fn shown(value: Option<&f64>) -> String {
    value.map_or("–".into(), |value| format!("{value:.0}"))
}

/// Returns the table of the rows that were played.
pub fn table(played: &[Played]) -> String {
    let mut rows: Vec<Row> = played.iter().map(|one| one.row).collect();
    rows.dedup();
    let (kept, by_token): (Vec<Row>, Vec<Row>) =
        rows.into_iter().partition(|row| row.promise() == Promise::Kept);
    let mut text = String::new();
    if !kept.is_empty() {
        text += HEAD;
        text.extend(kept.iter().map(|row| kept_row(*row, &outcomes(played, *row))));
    }
    if !by_token.is_empty() {
        text = text + "\n" + HEAD_BY_TOKEN;
        text.extend(
            by_token
                .iter()
                .map(|row| by_token_row(*row, &outcomes(played, *row))),
        );
    }
    text
}

fn kept_row(row: Row, outcomes: &[&Outcome]) -> String {
    let margins = sorted(outcomes.iter().filter_map(|outcome| outcome.margin()));
    let gaps = sorted(outcomes.iter().map(|outcome| outcome.gap()));
    let overlaps = outcomes.iter().filter(|outcome| outcome.overlaps()).count();
    let grow = outcomes.iter().all(|outcome| outcome.tokens_grow());
    let (worst, median) = (margins.first(), margins.get(margins.len() / 2));
    format!(
        "| {} | {} | {} | {} | {} | {} | {overlaps} | {} |\n",
        row.what(),
        outcomes.len(),
        shown(worst),
        shown(median),
        shown(gaps.get(gaps.len() / 2)),
        shown(gaps.last()),
        if grow { "yes" } else { "NO" },
    )
}

fn by_token_row(row: Row, outcomes: &[&Outcome]) -> String {
    let overlaps = outcomes.iter().filter(|outcome| outcome.overlaps()).count();
    let late: usize = outcomes.iter().map(|outcome| outcome.late).sum();
    let let_in: usize = outcomes.iter().map(|outcome| outcome.let_in).sum();
    let worst = sorted(outcomes.iter().map(|outcome| -outcome.gap()));
    format!(
        "| {} | {} | {overlaps} | {late} | {} | {let_in} |\n",
        row.what(),
        outcomes.len(),
        shown(worst.last()),
    )
}

pub fn without_guardian(played: &[Played]) -> String {
    let outcomes = outcomes(played, Row::WrapperFrozen);
    let overlaps = outcomes.iter().filter(|outcome| outcome.overlaps()).count();
    let late = sorted(outcomes.iter().map(|outcome| -outcome.gap()));
    format!(
        "Without the guardian, wrapper frozen: {overlaps} of {} trials overlap, by {} ms at least.",
        played.len(),
        shown(late.first()),
    )
}
