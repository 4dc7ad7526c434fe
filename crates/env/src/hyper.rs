//! The hypercalls of the kernel host, which `crates/kernel/c/hyper.c` implements.

use alloc::boxed::Box;
use core::ffi::c_void;
use core::sync::atomic::AtomicU32;
use core::time::Duration;

/// Limit of a wait for a lock: until the owner wakes the thread.
const LOCK: u64 = 0;
/// Limit of a wait for a condition: until a notification.
const CONDITION: u64 = u64::MAX;

unsafe extern "C" {
    fn ob_wait(word: *const AtomicU32, expected: u32, nanos: u64);
    fn ob_wake(word: *const AtomicU32, all: bool);
    fn ob_spawn(
        name: *const u8,
        len: usize,
        run: unsafe extern "C" fn(*mut c_void),
        data: *mut c_void,
    ) -> *mut c_void;
    fn ob_join(task: *mut c_void);
    fn ob_detach(task: *mut c_void);
}

/// Sleeps until `*word != expected`, or until another thread wakes this one.
pub(crate) fn wait_for_lock(word: &AtomicU32, expected: u32) {
    // SAFETY: the word outlives the call.
    unsafe { ob_wait(word, expected, LOCK) }
}

/// Sleeps until `*word != expected`, until another thread wakes this one, or for `limit`.
pub(crate) fn wait_for_notification(word: &AtomicU32, expected: u32, limit: Option<Duration>) {
    let nanos = limit.map_or(CONDITION, |limit| u64::try_from(limit.as_nanos()).unwrap_or(CONDITION).max(1));
    // SAFETY: the word outlives the call.
    unsafe { ob_wait(word, expected, nanos) }
}

/// Wakes one thread that waits on `word`.
pub(crate) fn wake_one(word: &AtomicU32) {
    // SAFETY: the kernel uses the address only.
    unsafe { ob_wake(word, false) }
}

/// Wakes all threads that wait on `word`.
pub(crate) fn wake_all(word: &AtomicU32) {
    // SAFETY: the kernel uses the address only.
    unsafe { ob_wake(word, true) }
}

/// A reference to a kernel thread.
#[derive(Debug)]
pub(crate) struct Task(*mut c_void);

// SAFETY: the kernel counts references to a task, and any thread may release one.
unsafe impl Send for Task {}
// SAFETY: a shared reference gives no access to the task.
unsafe impl Sync for Task {}

type Work = Box<dyn FnOnce() + Send>;

unsafe extern "C" fn run(data: *mut c_void) {
    // SAFETY: `spawn` created `data`, and the kernel runs it once.
    let work = unsafe { Box::from_raw(data.cast::<Work>()) };
    (*work)();
}

/// Starts a kernel thread. Returns `None` if the kernel has no room for one.
pub(crate) fn spawn(name: &str, work: Work) -> Option<Task> {
    let data = Box::into_raw(Box::new(work)).cast();
    // SAFETY: `run` takes ownership of `data`, unless no thread starts.
    let task = unsafe { ob_spawn(name.as_ptr(), name.len(), run, data) };
    if task.is_null() {
        // SAFETY: no thread took ownership.
        drop(unsafe { Box::from_raw(data.cast::<Work>()) });
        return None;
    }
    Some(Task(task))
}

impl Task {
    /// Returns once the thread has ended; immediately if the thread itself calls this method.
    pub(crate) fn join(self) {
        let this = core::mem::ManuallyDrop::new(self);
        // SAFETY: the reference is ours, and the call consumes it.
        unsafe { ob_join(this.0) }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        // SAFETY: the reference is ours, and the call consumes it.
        unsafe { ob_detach(self.0) }
    }
}
