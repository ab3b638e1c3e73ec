//! Converts times of log lines, which are of the wall clock, to the boot clock.

use std::time::Duration;

use redlock::clock;
use redlock::lease::BootInstant;

/// Samples of the difference between the two clocks: the wall clock may be set during the run.
#[derive(Debug, Default)]
pub struct Wall {
    /// The wall clock, and how far it was ahead of the boot clock.
    samples: Vec<(Duration, Duration)>,
}

impl Wall {
    #[cfg(test)]
    pub fn fixed(ahead: Duration) -> Self {
        Self {
            samples: vec![(ahead, ahead)],
        }
    }

    pub fn sample(&mut self) {
        // Two clocks cannot be read at once, so the closest of several tries counts.
        let tries = (0..5).map(|_| {
            let (before, wall, after) = (clock::now(), clock::unix_time(), clock::now());
            (
                after.since(before),
                wall,
                wall - before.since(BootInstant::default()),
            )
        });
        let (_, wall, ahead) = tries.min().unwrap();
        self.samples.push((wall, ahead));
    }

    /// Returns the earliest and the latest boot time of a wall time, by the samples before and after it.
    pub fn moment(&self, wall: Duration) -> (BootInstant, BootInstant) {
        let next = self.samples.partition_point(|(at, _)| *at < wall);
        let around = [next.checked_sub(1), Some(next)].into_iter().flatten();
        let ahead = around.filter_map(|index| Some(self.samples.get(index)?.1));
        let moments = ahead.map(|ahead| BootInstant::default() + wall.saturating_sub(ahead));
        let moments: Vec<BootInstant> = moments.collect();
        let earliest = moments.iter().min().expect("the clocks were compared");
        (*earliest, *moments.iter().max().unwrap())
    }
}

#[test]
fn a_clock_that_is_set_makes_times_vague() {
    let seconds = Duration::from_secs;
    let wall = Wall {
        samples: vec![
            (seconds(100), seconds(90)),
            (seconds(101), seconds(90)),
            (seconds(103), seconds(91)),
        ],
    };
    let at = |second| BootInstant::default() + seconds(second);
    assert_eq!(wall.moment(seconds(101)), (at(11), at(11)));
    assert_eq!(wall.moment(seconds(102)), (at(11), at(12)));
    assert_eq!(wall.moment(seconds(104)), (at(13), at(13)));
}
