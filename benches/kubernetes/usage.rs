//! Measures the resources of a process, by the counters of the kernel.

use std::fs;
use std::time::{Duration, Instant};

/// The CPU time of a process since the creation of this value.
pub struct Usage {
    pid: u32,
    cpu: Duration,
    began: Instant,
}

impl Usage {
    pub fn begin(pid: u32) -> Self {
        Self {
            pid,
            cpu: cpu(pid),
            began: Instant::now(),
        }
    }

    /// Returns the usage since the creation of this value, in percent of one core.
    pub fn percent(&self) -> f64 {
        (cpu(self.pid) - self.cpu).as_secs_f64() / self.began.elapsed().as_secs_f64() * 100.0
    }
}

/// Returns the user and system time of a process.
pub fn cpu(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    // The kernel reports hundredths of a second, independent of its tick rate.
    Duration::from_millis(ticks * 10)
}

/// Returns the resident memory now and at its peak, in MiB.
pub fn memory(pid: u32) -> (f64, f64) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        let kib: f64 = line.split_whitespace().next().unwrap().parse().unwrap();
        kib / 1024.0
    };
    (of("VmRSS:"), of("VmHWM:"))
}
