//! Places and styles each part of the timeline.

use super::svg::{Area, Body};
use super::{Fault, FaultKind, Frame};
use crate::claims::Claim;
use crate::observer::Record;
use redlock_core::BootInstant;

const WIDTH: f64 = 1000.0;
/// The width of the names of the rows.
const LEFT: f64 = 200.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 52.0;
/// The heights of the row of a lock, and of a replica or master.
const LOCK: f64 = 30.0;
const PART: f64 = 22.0;
const SECTION: f64 = 30.0;
const LEGEND: f64 = 78.0;
/// The approximate width of a character of a label.
const CHARACTER: f64 = 6.6;
/// The minimum distance between two labels of the axis.
const TICK: f64 = 55.0;

/// The colours of Okabe and Ito, which people with any colour vision can distinguish, in classes `h0` to `h5`. The
/// background is drawn, too: a transparent drawing is unreadable on a page with the other colour scheme.
const STYLE: &str = "
text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;fill:#1f2328}
.page{fill:#fff}.head{font-weight:600;font-size:14px}.section,.tick{fill:#59636e;font-size:11px}
.row{text-anchor:end}.middle{text-anchor:middle}.grid{stroke:#d1d9e0}.base{stroke:#d1d9e0;stroke-width:6;stroke-linecap:round}
.guide{stroke:#cf222e;stroke-dasharray:2 3;opacity:.75}.quiet{stroke:#59636e;stroke-dasharray:2 3;opacity:.6}
.h0{fill:#0072b2}.h1{fill:#e69f00}.h2{fill:#009e73}.h3{fill:#cc79a7}.h4{fill:#56b4e9}.h5{fill:#d55e00}
.faded{font-size:11px}.lost{fill:#fff;opacity:.6}.on{fill:#fff;font-size:11px;font-weight:600}.on.h1,.on.h3,.on.h4{fill:#1f2328}.on.h0,.on.h2,.on.h5{fill:#fff}
.kill{stroke:#cf222e;stroke-width:3;fill:none;stroke-linecap:round}.stop{fill:#59636e}
.pause{fill:#8250df}.empty{fill:#cf222e}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.page,.lost{fill:#0d1117}.section,.tick,.stop{fill:#9198a1}
.grid,.base{stroke:#30363d}.guide,.kill{stroke:#ff7b72}.quiet{stroke:#9198a1}.pause{fill:#ab7df8}.empty{fill:#ff7b72}}
";

#[derive(Debug)]
pub(super) struct Drawing<'a> {
    body: Body,
    frame: &'a Frame<'a>,
    locks: &'a [String],
    /// The replicas, in the order of their colours.
    replicas: Vec<&'a str>,
    seconds: f64,
}

impl<'a> Drawing<'a> {
    pub(super) fn new(record: &'a Record, frame: &'a Frame<'a>) -> Self {
        let started = record.replicas.iter().map(|replica| &replica.who);
        let holders = record.claims.all().iter().map(|claim| &claim.who);
        let mut replicas: Vec<&str> = started.chain(holders).map(|who| who.name.as_str()).collect();
        replicas.sort_unstable();
        replicas.dedup();
        Self {
            body: Body::default(),
            frame,
            locks: &record.locks,
            replicas,
            seconds: frame.took.as_secs_f64().max(1.0),
        }
    }

    /// Draws the grid, with labels at whole seconds that do not touch.
    pub(super) fn axis(&mut self) {
        let steps = [1_u32, 2, 5, 10, 20, 30, 60, 120, 300, 600];
        let wide = |step: &u32| f64::from(*step) * self.scale() >= TICK;
        let step = f64::from(steps.into_iter().find(wide).unwrap_or(1200));
        let bottom = self.bottom();
        let mut at = 0.0;
        while at <= self.seconds {
            let x = LEFT + at * self.scale();
            self.body.line("grid", (x, TOP), (x, bottom));
            self.body
                .text("tick middle", (x, bottom + 16.0), &format!("{at:.0} s"));
            at += step;
        }
    }

    /// Draws the names, and a base line for each replica and master.
    pub(super) fn rows(&mut self) {
        let Frame {
            seed, lease_seconds, ..
        } = *self.frame;
        let text = format!(
            "redlock demo: the holder of each lock, and the faults (leases of {lease_seconds} s, --seed {seed})"
        );
        self.body.text("head", (16.0, 24.0), &text);
        self.body
            .text("section", (16.0, TOP - 8.0), "locks, in the colour of the holder");
        for (index, lock) in self.locks.iter().enumerate() {
            let y = self.lock(index) + LOCK / 2.0 + 4.0;
            self.body.text("row", (LEFT - 12.0, y), lock);
        }
        self.body.text(
            "section",
            (16.0, self.parts() - 8.0),
            "faults of replicas and masters",
        );
        let names: Vec<String> = self.names().map(str::to_owned).collect();
        for name in names {
            let y = self.part(&name).unwrap_or_default() + PART / 2.0;
            self.body.text("row", (LEFT - 12.0, y + 4.0), &name);
            self.body.line("base", (LEFT, y), (WIDTH - RIGHT, y));
        }
    }

    /// Draws one bar. The part after the holder was killed or paused is faded.
    pub(super) fn lease(&mut self, claim: &Claim, faults: &[Fault]) {
        let Some(row) = self.locks.iter().position(|lock| *lock == claim.lock) else {
            return;
        };
        let (from, to) = (self.x(claim.began), self.x(claim.end()));
        let holder = self.colour(&claim.who.name);
        let area = |from: f64| Area {
            x: from,
            y: self.lock(row) + 4.0,
            width: (to - from).max(1.0),
            height: LOCK - 8.0,
        };
        let name = &claim.who.name;
        let title = format!(
            "{}: {name} {}, token {}",
            claim.lock,
            self.span(claim.began, Some(claim.end())),
            claim.token
        );
        let whole = area(from);
        let strikes = faults.iter().find(|fault| {
            let deadly = matches!(fault.kind, FaultKind::Kill | FaultKind::Pause);
            deadly && fault.of == *name && claim.began <= fault.at && fault.at < claim.end()
        });
        let rest = strikes.map(|fault| area(self.x(fault.at)));
        self.body.rectangle(&format!("lease {holder}"), whole, &title);
        if let Some(rest) = rest {
            self.body
                .rectangle("rest lost", rest, &format!("{title}; its process no longer acts"));
        }
        let name_width = CHARACTER * (name.chars().count() as f64 + 1.5);
        let seen = rest.map_or(whole.width, |rest| rest.x - whole.x);
        let y = self.lock(row) + LOCK / 2.0 + 4.0;
        if seen > name_width {
            self.body.text(&format!("on {holder}"), (from + 5.0, y), name);
        } else if let Some(rest) = rest.filter(|rest| rest.width > name_width) {
            self.body.text("faded", (rest.x + 5.0, y), name);
        }
    }

    /// Draws a line from the fault of a replica up to the locks that it moves.
    pub(super) fn guide(&mut self, fault: &Fault) {
        if let Some(y) = self
            .part(&fault.of)
            .filter(|_| self.replicas.contains(&fault.of.as_str()))
        {
            let class = if fault.kind == FaultKind::Stop {
                "quiet"
            } else {
                "guide"
            };
            let x = self.x(fault.at);
            self.body.line(class, (x, TOP), (x, y + PART / 2.0));
        }
    }

    pub(super) fn fault(&mut self, fault: &Fault) {
        let Some(y) = self.part(&fault.of) else { return };
        let end = fault.until.unwrap_or(self.frame.started + self.frame.took);
        let (x, width) = (self.x(fault.at), self.x(end) - self.x(fault.at));
        let lasts = matches!(fault.kind, FaultKind::Pause | FaultKind::Empty);
        let when = if lasts {
            self.span(fault.at, Some(end))
        } else {
            format!("at {:.1} s", self.after(fault.at))
        };
        let title = format!("{} {} {when}", verb(fault.kind), fault.of);
        self.mark(fault.kind, (x, y + PART / 2.0), width.max(3.0), &title);
    }

    fn mark(&mut self, kind: FaultKind, (x, y): (f64, f64), width: f64, title: &str) {
        let span = Area {
            x,
            y: y - 6.0,
            width,
            height: 12.0,
        };
        match kind {
            FaultKind::Kill => {
                let path = format!("M{:.1} {:.1}l10 10m0 -10l-10 10", x - 5.0, y - 5.0);
                self.body.path("mark kill", &path, title);
            }
            FaultKind::Stop => {
                let path = format!("M{:.1} {:.1}h12l-6 11z", x - 6.0, y - 5.0);
                self.body.path("mark stop", &path, title);
            }
            FaultKind::Pause => self.body.rectangle("mark pause", span, title),
            FaultKind::Empty => self.body.rectangle("mark empty", span, title),
        }
    }

    pub(super) fn legend(&mut self) {
        let y = self.bottom() + 42.0;
        let mut x = LEFT;
        let replicas: Vec<String> = self.replicas.iter().map(|name| (*name).to_owned()).collect();
        for name in replicas {
            let class = self.colour(&name);
            self.body.rectangle(&class, swatch(x, y), "");
            x = self.explained(x, y, &name);
        }
        let last = self.colour("");
        self.body.rectangle(&last, swatch(x, y), "");
        self.body.rectangle("lost", swatch(x, y), "");
        self.explained(x, y, "rest of the lease of a killed or paused holder");
        x = LEFT;
        let y = y + 24.0;
        for (class, kind, text) in [
            ("kill", FaultKind::Kill, "kill -9"),
            ("stop", FaultKind::Stop, "SIGTERM"),
            ("pause", FaultKind::Pause, "SIGSTOP until SIGCONT"),
            (
                "empty",
                FaultKind::Empty,
                "restarted empty: no vote until it is sealed again",
            ),
        ] {
            let center = x + 7.0;
            match kind {
                FaultKind::Kill => self.body.path(
                    class,
                    &format!("M{:.1} {:.1}l10 10m0 -10l-10 10", center - 5.0, y - 9.0),
                    "",
                ),
                FaultKind::Stop => self.body.path(
                    class,
                    &format!("M{:.1} {:.1}h12l-6 11z", center - 6.0, y - 9.0),
                    "",
                ),
                FaultKind::Pause | FaultKind::Empty => self.body.rectangle(class, swatch(x, y), ""),
            }
            x = self.explained(x, y, text);
        }
    }

    /// Draws one entry of the legend and returns the position of the next one.
    fn explained(&mut self, x: f64, y: f64, text: &str) -> f64 {
        self.body.text("label", (x + 20.0, y), text);
        x + 44.0 + CHARACTER * text.chars().count() as f64
    }

    pub(super) fn finish(self) -> String {
        let height = self.bottom() + LEGEND;
        let title = format!("Timeline of a run of redlock demo, --seed {}", self.frame.seed);
        self.body.finish((WIDTH, height), &title, STYLE)
    }

    fn scale(&self) -> f64 {
        (WIDTH - LEFT - RIGHT) / self.seconds
    }

    /// Returns the seconds from the start to `at`.
    fn after(&self, at: BootInstant) -> f64 {
        at.since(self.frame.started).as_secs_f64()
    }

    fn x(&self, at: BootInstant) -> f64 {
        LEFT + self.after(at).min(self.seconds) * self.scale()
    }

    fn span(&self, from: BootInstant, to: Option<BootInstant>) -> String {
        let to = to.map_or(self.seconds, |to| self.after(to));
        format!("from {:.1} s to {to:.1} s", self.after(from))
    }

    fn lock(&self, row: usize) -> f64 {
        TOP + LOCK * row as f64
    }

    /// Returns the top of the rows of replicas and masters.
    fn parts(&self) -> f64 {
        self.lock(self.locks.len()) + SECTION
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.replicas
            .iter()
            .copied()
            .chain(self.frame.masters.iter().map(String::as_str))
    }

    fn part(&self, name: &str) -> Option<f64> {
        let row = self.names().position(|other| other == name)?;
        Some(self.parts() + PART * row as f64)
    }

    fn bottom(&self) -> f64 {
        self.parts() + PART * self.names().count() as f64 + 6.0
    }

    fn colour(&self, replica: &str) -> String {
        let index = self.replicas.iter().position(|name| *name == replica);
        format!("h{}", index.unwrap_or_default() % 6)
    }
}

fn swatch(x: f64, y: f64) -> Area {
    Area {
        x,
        y: y - 10.0,
        width: 14.0,
        height: 12.0,
    }
}

fn verb(kind: FaultKind) -> &'static str {
    match kind {
        FaultKind::Kill => "kill -9",
        FaultKind::Stop => "SIGTERM to",
        FaultKind::Pause => "SIGSTOP",
        FaultKind::Empty => "empty restart of",
    }
}
