//! Formats and summarises measured numbers.

use std::time::Duration;

pub struct Stats(Vec<f64>);

impl Stats {
    pub fn of(samples: &[Duration]) -> Self {
        Self::of_numbers(samples.iter().map(|d| d.as_secs_f64() * 1e6).collect())
    }

    pub fn of_numbers(mut numbers: Vec<f64>) -> Self {
        numbers.sort_by(f64::total_cmp);
        Self(numbers)
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns a quantile of durations, in microseconds.
    pub fn quantile(&self, q: f64) -> f64 {
        let index = ((self.0.len() as f64 - 1.0) * q).round() as usize;
        self.0.get(index).copied().unwrap_or(f64::NAN)
    }

    pub fn line(&self, what: &str) {
        println!(
            "{what:<44} p50 {:>9.1} µs   p99 {:>9.1} µs   max {:>9.1} µs   n {}",
            self.quantile(0.5),
            self.quantile(0.99),
            self.quantile(1.0),
            self.0.len()
        );
    }
}

pub fn machine() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|l| l.strip_prefix("model name")?.split_once(": "))
        .map_or("", |(_, m)| m);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!(
        "machine: {cores} cores, {model}; load average {}",
        load.split(' ').take(3).collect::<Vec<_>>().join(" ")
    )
}

pub fn load() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().unwrap_or("?").to_owned()
}

/// Returns the CPU time of this process, user and system.
pub fn cpu_time() -> Duration {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF).unwrap();
    let seconds = |t: nix::sys::time::TimeVal| {
        Duration::from_micros(t.tv_sec() as u64 * 1_000_000 + t.tv_usec() as u64)
    };
    seconds(usage.user_time()) + seconds(usage.system_time())
}

/// Returns the CPU time of the main thread of another process.
pub fn cpu_time_of(process: u32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{process}/schedstat")).unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}
