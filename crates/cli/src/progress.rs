//! The progress bar: on standard error, if it is a terminal, and only for work of more than half a second.
//!
//! The thread that does the work draws it, ten times a second at most: the sandbox would have to admit another thread.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::messages::Messages;
use crate::report::printable;

const PATIENCE: Duration = Duration::from_millis(500);
const REDRAW: Duration = Duration::from_millis(100);
/// The rate of the first moments is not that of the work.
const UNRATED: Duration = Duration::from_secs(1);

/// A progress bar that is removed from the terminal when it is dropped, and hidden while a message is printed.
pub struct Progress<'c> {
    messages: &'c Messages,
    meter: Meter,
}

impl<'c> Progress<'c> {
    /// Creates a bar for `action`, such as `copying`.
    pub fn new(messages: &'c Messages, action: &'static str) -> Self {
        Self { messages, meter: Meter::new(messages, action) }
    }

    /// Shows that `done` bytes of `total`, if known, are done; `name` is the current file.
    pub fn update(&mut self, done: u64, total: Option<u64>, name: &[u8]) {
        let was_shown = self.meter.bar.is_some();
        self.meter.update(done, total, name);
        if !was_shown && self.meter.bar.is_some() {
            self.messages.set_bar(self.meter.bar.clone());
        }
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        self.messages.set_bar(None);
    }
}

/// A bar for work that prints no messages.
pub struct Meter {
    action: &'static str,
    /// When to draw next; `None` if the bar is not shown.
    next: Option<Instant>,
    /// When the bar shows the rate and the remaining time; `None` if it shows them.
    rated: Option<Instant>,
    bar: Option<ProgressBar>,
}

impl Meter {
    /// Creates a bar for `action`, such as `unpacking`.
    pub fn new(messages: &Messages, action: &'static str) -> Self {
        let next = messages.has_progress().then(|| Instant::now() + PATIENCE);
        Self { action, next, rated: None, bar: None }
    }

    /// Works like [`Progress::update`].
    pub fn update(&mut self, done: u64, total: Option<u64>, name: &[u8]) {
        let now = Instant::now();
        if self.next.is_none_or(|next| now < next) {
            return;
        }
        self.next = Some(now + REDRAW);
        let bar = self.bar.get_or_insert_with(|| {
            // The work before the first drawing must not count for the rate.
            // The style comes first: every later call may draw.
            let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr())
                .with_style(style(total.is_some(), false))
                .with_prefix(self.action)
                .with_position(done);
            bar.reset_eta();
            self.rated = Some(now + UNRATED);
            bar
        });
        if self.rated.is_some_and(|rated| now >= rated) {
            self.rated = None;
            bar.set_style(style(total.is_some(), true));
        }
        bar.set_message(printable(name));
        bar.set_position(done);
        bar.tick();
    }

    /// Removes the bar from the terminal.
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

const WITH_TOTAL: &str = "{prefix} [{bar:20}] {binary_bytes} of {binary_total_bytes}  {wide_msg}";
const WITH_TOTAL_AND_RATE: &str = "{prefix} [{bar:20}] {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left  {wide_msg}";
const WITHOUT_TOTAL: &str = "{prefix} {binary_bytes}  {wide_msg}";
const WITHOUT_TOTAL_AND_RATE: &str = "{prefix} {binary_bytes}, {binary_bytes_per_sec}  {wide_msg}";

fn style(has_total: bool, has_rate: bool) -> ProgressStyle {
    let template = match (has_total, has_rate) {
        (true, true) => WITH_TOTAL_AND_RATE,
        (true, false) => WITH_TOTAL,
        (false, true) => WITHOUT_TOTAL_AND_RATE,
        (false, false) => WITHOUT_TOTAL,
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    style.progress_chars("=> ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_templates_are_valid() {
        assert!(ProgressStyle::with_template(WITH_TOTAL).is_ok());
        assert!(ProgressStyle::with_template(WITHOUT_TOTAL).is_ok());
        assert!(ProgressStyle::with_template(WITH_TOTAL_AND_RATE).is_ok());
        assert!(ProgressStyle::with_template(WITHOUT_TOTAL_AND_RATE).is_ok());
    }
}
