//! A place where a test exchanges files between two system calls, as another process could.

#[cfg(test)]
thread_local! {
    static HOOK: std::cell::RefCell<Option<Box<dyn FnMut()>>> = const { std::cell::RefCell::new(None) };
}

/// Calls `hook` at each later [`run`] of this thread.
#[cfg(test)]
pub(crate) fn set(hook: impl FnMut() + 'static) {
    HOOK.with(|current| *current.borrow_mut() = Some(Box::new(hook)));
}

/// Calls the hook of a test. Does nothing otherwise.
pub(crate) fn run() {
    #[cfg(test)]
    HOOK.with(|hook| hook.borrow_mut().iter_mut().for_each(|hook| hook()));
}
