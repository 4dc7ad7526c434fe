//! The progress bar: on standard error, only if that is a terminal, and only for what takes longer than half a second.
//!
//! It is drawn by whoever does the work, ten times a second at most: a thread of its own would have to be let into the
//! sandbox.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::context::Context;
use crate::report::printable;

const PATIENCE: Duration = Duration::from_millis(500);
const REDRAW: Duration = Duration::from_millis(100);

/// How far a piece of work is. Gone from the terminal when it is dropped, and out of the way of messages.
pub struct Progress<'c> {
    context: &'c Context,
    meter: Meter,
}

impl<'c> Progress<'c> {
    /// For work called `action`: `copying`.
    pub fn new(context: &'c Context, action: &'static str) -> Self {
        Self { context, meter: Meter::new(context, action) }
    }

    /// `done` bytes of `total`, if that is known, are done; `name` is what is at work.
    pub fn update(&mut self, done: u64, total: Option<u64>, name: &[u8]) {
        let was_shown = self.meter.bar.is_some();
        self.meter.update(done, total, name);
        if !was_shown && self.meter.bar.is_some() {
            self.context.set_bar(self.meter.bar.clone());
        }
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        self.context.set_bar(None);
    }
}

/// A bar that nothing is told beside, for work that tells nothing.
pub struct Meter {
    action: &'static str,
    /// When to draw next; never, if nobody sees it.
    next: Option<Instant>,
    bar: Option<ProgressBar>,
}

impl Meter {
    /// For work called `action`: `unpacking`.
    pub fn new(context: &Context, action: &'static str) -> Self {
        let next = context.progress_wanted().then(|| Instant::now() + PATIENCE);
        Self { action, next, bar: None }
    }

    /// As [`Progress::update`].
    pub fn update(&mut self, done: u64, total: Option<u64>, name: &[u8]) {
        let now = Instant::now();
        if self.next.is_none_or(|next| now < next) {
            return;
        }
        self.next = Some(now + REDRAW);
        let bar = self.bar.get_or_insert_with(|| {
            // What was done before the bar came counts as done, and not as done in this moment.
            let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr()).with_position(done);
            bar.reset_eta();
            bar.set_prefix(self.action);
            bar.set_style(style(total.is_some()));
            bar
        });
        bar.set_message(printable(name));
        bar.set_position(done);
        bar.tick();
    }

    /// Takes the bar off the terminal.
    pub fn finish(&mut self) {
        self.next = None;
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.finish();
    }
}

const WITH_TOTAL: &str = "{prefix} [{bar:20}] {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left  {wide_msg}";
const WITHOUT_TOTAL: &str = "{prefix} {binary_bytes}, {binary_bytes_per_sec}  {wide_msg}";

fn style(has_total: bool) -> ProgressStyle {
    let template = if has_total { WITH_TOTAL } else { WITHOUT_TOTAL };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    style.progress_chars("=> ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_templates_are_templates() {
        assert!(ProgressStyle::with_template(WITH_TOTAL).is_ok());
        assert!(ProgressStyle::with_template(WITHOUT_TOTAL).is_ok());
    }
}
