//! Works on tasks in parallel, and hands the results over in the order of the tasks.
//!
//! The calling thread lists the tasks and consumes the results; the other threads read and compute. Tasks are passed in batches, so that
//! small files cost little.
//!
//! Invariant: at most [`WINDOW`] batches are listed and not yet consumed. A batch that is not the next one contains at
//! most [`HELD`] bytes and one more result. So memory is bounded for any tree. The next batch is passed on in pieces.
//! Invariant: only the thread of the next batch waits for the calling thread. The calling thread consumes that batch
//! before it waits for any other batch. So the threads cannot wait for each other.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::num::NonZero;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, available_parallelism};

use super::select::Task;
use crate::output::{Outcome, Stop, go_on};
use crate::report::Report;

/// The most batches between the list and the output.
const WINDOW: u64 = 256;
/// The most bytes that a batch holds while it waits for its turn.
const HELD: usize = 128 << 10;
/// The most tasks of a batch.
const TASKS: usize = 32;
/// The size of files at which a batch ends.
const BYTES: u64 = 1 << 20;
/// The most results on their way to the calling thread.
const CHANNEL: usize = 64;
/// The most threads that read.
const THREADS: usize = 64;

/// Whether more results are wanted.
pub type Flow = Result<ControlFlow<()>, Stop>;

/// A result of a task.
pub enum Said<D> {
    /// Bytes of the output.
    Bytes(Vec<u8>),
    /// A part that failed.
    Fault(Report),
    /// A result of the command.
    Done(D),
}

/// Tasks that one thread works on, and their place in the order.
struct Batch {
    turn: u64,
    tasks: Vec<Result<Task, Report>>,
}

/// Results of the batch `turn`, and whether they are its last ones.
struct Message<D> {
    turn: u64,
    said: Vec<Said<D>>,
    is_last: bool,
}

#[derive(Default)]
struct State {
    batches: VecDeque<Batch>,
    /// No more batches follow.
    is_closed: bool,
    /// The batch whose results are consumed next.
    turn: u64,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    listed: Condvar,
    turned: Condvar,
    is_stopped: AtomicBool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Relaxed)
    }

    /// Ends the work early: threads finish without further results.
    fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.close();
    }

    fn close(&self) {
        self.lock().is_closed = true;
        self.listed.notify_all();
        self.turned.notify_all();
    }

    fn next_batch(&self) -> Option<Batch> {
        let mut state = self.lock();
        loop {
            if self.stopped() {
                return None;
            }
            if let Some(batch) = state.batches.pop_front() {
                return Some(batch);
            }
            if state.is_closed {
                return None;
            }
            state = self.listed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until the results of batch `turn` are consumed next, or the work ends.
    fn wait_for(&self, turn: u64) {
        let mut state = self.lock();
        while state.turn < turn && !self.stopped() {
            state = self.turned.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Takes the results of the tasks of a batch.
pub struct Results<'p, D> {
    shared: &'p Shared,
    sender: &'p SyncSender<Message<D>>,
    turn: u64,
    said: Vec<Said<D>>,
    held: usize,
}

impl<D> Results<'_, D> {
    /// Adds bytes to the output.
    pub fn bytes(&mut self, bytes: &[u8]) {
        match self.said.last_mut() {
            Some(Said::Bytes(last)) => last.extend_from_slice(bytes),
            _ => self.said.push(Said::Bytes(bytes.to_vec())),
        }
        self.held += bytes.len();
        if self.held >= HELD {
            self.pass_on();
        }
    }

    /// Reports that a part failed.
    pub fn fault(&mut self, report: Report) {
        self.said.push(Said::Fault(report));
    }

    /// Adds a result of the command.
    pub fn done(&mut self, done: D) {
        self.said.push(Said::Done(done));
    }

    /// Returns whether no results are wanted any more. Long work asks between two steps.
    pub fn is_stopped(&self) -> bool {
        self.shared.stopped()
    }

    /// Waits for the turn of the batch, and passes its results on.
    fn pass_on(&mut self) {
        self.shared.wait_for(self.turn);
        self.send(false);
    }

    fn send(&mut self, is_last: bool) {
        self.held = 0;
        let message = Message { turn: self.turn, said: std::mem::take(&mut self.said), is_last };
        // Without a receiver, the work has ended.
        let _ = self.sender.send(message);
    }
}

impl<D> io::Write for Results<'_, D> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Calls `work` for each of `tasks` in other threads, and `consume` for each result in this one, in the order of the tasks. A task that
/// is a report is passed to `consume` as it is. `consume` ends the work early by `Break` or an error.
///
/// # Errors
///
/// Those of `consume`, Ctrl-C in a shell, and no thread can be started.
pub fn in_order<D: Send>(
    tasks: impl Iterator<Item = Result<Task, Report>>,
    work: impl Fn(&Task, &mut Results<'_, D>) + Sync,
    mut consume: impl FnMut(Said<D>) -> Flow,
) -> Outcome {
    let shared = Shared::default();
    let (sender, receiver) = sync_channel(CHANNEL);
    std::thread::scope(|scope| {
        // Stops the threads however this function returns, before the scope waits for them.
        let guard = StopOnDrop { shared: &shared };
        let threads = available_parallelism().map_or(1, NonZero::get).min(THREADS);
        for index in 0..threads {
            let (shared, work, sender) = (&shared, &work, sender.clone());
            let body = move || serve(shared, &sender, work);
            match Builder::new().name("files".into()).spawn_scoped(scope, body) {
                Ok(_) => {}
                Err(_) if index > 0 => break,
                Err(error) => return Err(Report::new("cannot start a thread", error).into()),
            }
        }
        drop(sender);
        let flow = lead(&shared, receiver, tasks, &mut consume);
        drop(guard);
        flow.map(drop)
    })
}

struct StopOnDrop<'p> {
    shared: &'p Shared,
}

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

/// Works on batches until no more follow.
fn serve<D>(shared: &Shared, sender: &SyncSender<Message<D>>, work: impl Fn(&Task, &mut Results<'_, D>)) {
    while let Some(batch) = shared.next_batch() {
        let mut sink = Results { shared, sender, turn: batch.turn, said: Vec::new(), held: 0 };
        for task in batch.tasks {
            match task {
                Ok(task) if !shared.stopped() => work(&task, &mut sink),
                Ok(_) => {}
                Err(report) => sink.fault(report),
            }
        }
        sink.send(true);
    }
}

/// Lists tasks and consumes results. Takes the receiver, so that no thread waits for it afterwards.
fn lead<D>(
    shared: &Shared,
    receiver: Receiver<Message<D>>,
    mut tasks: impl Iterator<Item = Result<Task, Report>>,
    consume: &mut impl FnMut(Said<D>) -> Flow,
) -> Flow {
    let (mut listed, mut turn, mut early) = (0, 0, BTreeMap::new());
    let mut is_listed = false;
    loop {
        while !is_listed && listed - turn < WINDOW {
            let tasks = gather(&mut tasks);
            is_listed = tasks.is_empty();
            if !is_listed {
                shared.lock().batches.push_back(Batch { turn: listed, tasks });
                shared.listed.notify_one();
                listed += 1;
            }
            while let Ok(message) = receiver.try_recv() {
                if take(shared, message, &mut turn, &mut early, consume)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        if turn == listed {
            return Ok(ControlFlow::Continue(()));
        }
        // Without a sender, a thread has panicked, and the scope passes that on.
        let Ok(message) = receiver.recv() else { return Ok(ControlFlow::Break(())) };
        if take(shared, message, &mut turn, &mut early, consume)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
}

fn gather(tasks: &mut impl Iterator<Item = Result<Task, Report>>) -> Vec<Result<Task, Report>> {
    let (mut batch, mut bytes) = (Vec::new(), 0_u64);
    while batch.len() < TASKS && bytes < BYTES {
        let Some(task) = tasks.next() else { break };
        bytes = bytes.saturating_add(task.as_ref().map_or(0, |task| task.size));
        batch.push(task);
    }
    batch
}

/// Consumes `message` if it is its turn, and then the batches after it that have ended.
fn take<D>(
    shared: &Shared,
    message: Message<D>,
    turn: &mut u64,
    early: &mut BTreeMap<u64, Vec<Said<D>>>,
    consume: &mut impl FnMut(Said<D>) -> Flow,
) -> Flow {
    go_on()?;
    if message.turn != *turn {
        early.insert(message.turn, message.said);
        return Ok(ControlFlow::Continue(()));
    }
    let mut next = Some(message.said);
    while let Some(said) = next {
        for said in said {
            if consume(said)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        if !message.is_last {
            return Ok(ControlFlow::Continue(()));
        }
        *turn += 1;
        next = early.remove(turn);
    }
    shared.lock().turn = *turn;
    shared.turned.notify_all();
    Ok(ControlFlow::Continue(()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Input;

    fn task(name: usize) -> Result<Task, Report> {
        match name % 100 {
            99 => Err(Report::new("cannot read", name.to_string())),
            _ => Ok(Task {
                shown: name.to_string().into_bytes(),
                input: Input::Stdin,
                size: 0,
                index: 0,
                is_alone: true,
            }),
        }
    }

    #[test]
    fn results_of_any_length_are_consumed_in_the_order_of_the_tasks() {
        let (mut text, mut faults) = (Vec::new(), 0);
        let work = |task: &Task, sink: &mut Results<'_, ()>| {
            let number: usize = std::str::from_utf8(&task.shown).unwrap().parse().unwrap();
            // Every seventh result is longer than what a batch may hold.
            let times = if number.is_multiple_of(7) { HELD / 64 } else { 1 };
            for _ in 0..times {
                sink.bytes(format!("{number} {:60}\n", "").as_bytes());
            }
        };
        let consume = |said: Said<()>| {
            match said {
                Said::Bytes(bytes) => text.extend(bytes),
                Said::Fault(_) => faults += 1,
                Said::Done(()) => {}
            }
            Ok(ControlFlow::Continue(()))
        };
        in_order((0..3000).map(task), work, consume).unwrap();
        let numbers: Vec<usize> = String::from_utf8(text)
            .unwrap()
            .lines()
            .map(|line| line.split(' ').next().unwrap().parse().unwrap())
            .collect();
        assert!(numbers.is_sorted());
        assert_eq!(faults, 30);
        assert_eq!(numbers.last(), Some(&2998));
    }

    #[test]
    fn the_consumer_ends_the_work() {
        let work = |_: &Task, sink: &mut Results<'_, ()>| sink.bytes(&[0; HELD * 2]);
        let mut left = 3;
        let consume = |_| {
            left -= 1;
            Ok(if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        };
        in_order((0..).map(task), work, consume).unwrap();
        assert_eq!(left, 0);
    }
}
