//! Serving mounts until their end.

use std::io;
use std::sync::Arc;
use std::sync::mpsc;

use obento::Volume;
use obento_fuse::handover::ControlListener;
use obento_fuse::{
    MountPlace, Pauser, Served, Server, ServingListener, Session, UnmountListener, Unmounter, signals,
};

use super::control::{Desk, Origin};
use super::failover::Keeper;
use super::janitor::Janitor;
use super::opened::OpenedMount;

/// A mount with its server, before requests are served.
pub struct Service {
    pub place: MountPlace,
    pub opened: OpenedMount,
    pub server: Arc<Server>,
    pub session: Box<dyn Session>,
    pub pauser: Pauser,
    pub janitor: Janitor,
    pub unmount: Option<UnmountListener>,
    pub control: Option<ControlListener>,
    pub origin: Origin,
    pub keeper: Option<Arc<Keeper>>,
}

impl Service {
    /// Ends a mount that was not served. Otherwise it would stay, and its users would get ENOTCONN.
    pub fn give_up(self) {
        let Self { place, session, mut janitor, keeper, .. } = self;
        // Without a server, the kernel waits for no answer.
        drop(session);
        // This process may have given up the right to unmount.
        if place.unmount(Unmounter { lazy: true, force: false }).is_err()
            && let Err(error) = janitor.unmount_and_wait()
        {
            tracing::error!(%error, "the mount cannot be ended");
        }
        if let Some(keeper) = keeper {
            keeper.end();
        }
    }
}

/// Serves mounts until each is unmounted or another server takes it, and ends the changes.
///
/// # Errors
///
/// The changes were not written to stable storage, or the connection to the kernel failed.
pub fn run(services: Vec<Service>) -> Result<(), String> {
    let (mut mounts, mut ends) = (Vec::new(), Vec::new());
    for service in services {
        let Service { opened, server, session, pauser, janitor, unmount, control, origin, keeper, .. } =
            service;
        ends.push((janitor, opened.volume.clone(), keeper.clone()));
        mounts.push(ServingMount { opened, server, session, pauser, unmount, control, origin, keeper });
    }
    end_on_signal(ends);
    let count = mounts.len();
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        for mount in mounts {
            let sender = sender.clone();
            scope.spawn(move || drop(sender.send(mount.serve())));
        }
        drop(sender);
        let mut done = Ok(());
        for (number, served) in (1..).zip(receiver) {
            if number == count {
                // The next process that opens the image sees this, and waits.
                let _ = rustix::thread::set_name(obento::host::ENDING);
            }
            done = done.and(served.and_then(ServedMount::end));
        }
        done
    })
}

/// Unmounts everything at the first signal. The second one does not wait for the users.
fn end_on_signal(mut mounts: Vec<(Janitor, Volume, Option<Arc<Keeper>>)>) {
    std::thread::spawn(move || {
        signals::wait();
        for (janitor, ..) in &mut mounts {
            let _ = janitor.unmount();
        }
        signals::wait();
        let failed = mounts.iter().filter(|(_, volume, _)| volume.sync().is_err()).count();
        mounts.iter().filter_map(|(.., keeper)| keeper.as_ref()).for_each(|keeper| keeper.end());
        std::process::exit(i32::from(failed > 0));
    });
}

/// A mount that is served.
struct ServingMount {
    opened: OpenedMount,
    server: Arc<Server>,
    session: Box<dyn Session>,
    pauser: Pauser,
    unmount: Option<UnmountListener>,
    control: Option<ControlListener>,
    origin: Origin,
    keeper: Option<Arc<Keeper>>,
}

/// A mount whose requests have ended.
struct ServedMount {
    opened: OpenedMount,
    server: Arc<Server>,
    unmount: Option<ServingListener>,
    served: io::Result<()>,
}

impl ServingMount {
    fn serve(self) -> Result<ServedMount, String> {
        let Self { opened, server, session, pauser, unmount, control, origin, keeper } = self;
        let failed = |error: io::Error| error.to_string();
        let mut unmount = unmount.map(UnmountListener::attend).transpose().map_err(failed)?;
        let desk = Desk::new(&opened, &server, &*session, &pauser, origin);
        let desk = control.map(|control| desk.attend(control)).transpose().map_err(failed)?;
        let mut session = session;
        let served = loop {
            match session.serve() {
                Err(error) => break Err(error),
                Ok(Served::Ended) => break Ok(()),
                Ok(Served::Paused(paused)) => {
                    pauser.withdraw();
                    if let Some(desk) = &desk {
                        unmount = desk.pass_on(&opened, &*paused, unmount);
                    }
                    session = paused;
                }
            }
        };
        if let Some(unmount) = &unmount {
            unmount.begin_closing();
        }
        if let Some(keeper) = keeper {
            // If this process fails from here on, the next user of the image replays the journal.
            let _ = opened.volume.sync();
            keeper.end();
        }
        Ok(ServedMount { opened, server, unmount, served })
    }
}

impl ServedMount {
    /// Ends the changes, and reports the result to waiting processes.
    fn end(self) -> Result<(), String> {
        self.server.end();
        let closed = match (self.opened.volume.close(), self.served) {
            (Err(error), _) => Err(error.to_string()),
            (Ok(()), Err(error)) => Err(format!("the connection to the kernel failed: {error}")),
            (Ok(()), Ok(())) => Ok(()),
        };
        if let Some(unmount_listener) = self.unmount {
            unmount_listener.say(closed.as_ref().err().map(String::as_str));
        }
        closed
    }
}
