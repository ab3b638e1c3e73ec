//! Collects the figures that have a goal, and prints them in one table at the end.

use redlock_bench::stats::Stats;

#[derive(Clone, Copy)]
pub enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

struct Row {
    what: String,
    unit: &'static str,
    figures: Stats,
    goal: Goal,
}

#[derive(Default)]
pub struct Goals(Vec<Row>);

impl Goals {
    /// Adds a figure. `figures` are repeated measurements of it in this run.
    pub fn add(&mut self, what: &str, figures: &[f64], unit: &'static str, goal: Goal) {
        self.0.push(Row {
            what: what.to_owned(),
            unit,
            figures: Stats::of_numbers(figures.to_vec()),
            goal,
        });
    }

    pub fn print(&self) {
        if self.0.is_empty() {
            return;
        }
        println!("\n| figure | minimum | median | n | goal | median meets it |");
        println!("|---|---|---|---|---|---|");
        for row in &self.0 {
            let (least, middle) = (row.figures.quantile(0.0), row.figures.quantile(0.5));
            let (sign, bound, met) = match row.goal {
                Goal::AtMost(bound) => ("≤", bound, middle <= bound),
                Goal::AtLeast(bound) => ("≥", bound, middle >= bound),
            };
            println!(
                "| {} | {least:.2} | {middle:.2} | {} | {sign} {bound} {} | {} |",
                row.what,
                row.figures.count(),
                row.unit,
                if met { "yes" } else { "no" }
            );
        }
    }
}
