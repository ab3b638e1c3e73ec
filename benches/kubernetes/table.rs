//! Prints tables in Markdown, as in docs/kubernetes.md.

/// Prints a heading and the head of a table.
pub fn begin(title: &str) {
    println!(
        "\n## {title}\n\nLoad average {} at the beginning.\n",
        redlock_bench::stats::load()
    );
    println!("| what | measured | goal |\n|---|---|---|");
}

pub fn row(what: &str, measured: &str, goal: &str) {
    println!("| {what} | {measured} | {goal} |");
}

/// Samples in milliseconds.
pub struct Many(Vec<f64>);

impl Many {
    pub fn of(mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        Self(samples)
    }

    pub fn quantile(&self, q: f64) -> f64 {
        let index = ((self.0.len() as f64 - 1.0) * q).round() as usize;
        self.0.get(index).copied().unwrap_or(f64::NAN)
    }

    pub fn text(&self) -> String {
        let [p50, p99, max] = [0.5, 0.99, 1.0].map(|q| self.quantile(q));
        let digits = usize::from(max < 100.0);
        format!(
            "p50 {p50:.digits$} ms, p99 {p99:.digits$} ms, max {max:.digits$} ms (n = {})",
            self.0.len()
        )
    }
}
