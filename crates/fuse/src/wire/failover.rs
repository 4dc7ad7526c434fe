//! Requests of a mount that survives a failure of its server (`-o failover`).
//!
//! One request at a time changes the volume. Its changes and its reply are in the ledger before the reply is sent, so
//! that the next server sends the same reply if the kernel sends the request again.

use obento_base::Errno;

use super::abi::{InHeader, opcode};
use super::reply::Pending;
use super::request::RequestBody;
use super::{BODY, Handler, Wire};
use crate::ledger::{Effect, Ledger};

/// Returns what a request may do, or `None` if it neither changes files nor counts lookups.
///
/// Access times are not among the changes: the kernel does not wait for them.
fn effect(code: u32) -> Option<Effect> {
    match code {
        opcode::LOOKUP | opcode::READDIRPLUS => Some(Effect::Lookups),
        opcode::SYMLINK
        | opcode::MKNOD
        | opcode::MKDIR
        | opcode::UNLINK
        | opcode::RMDIR
        | opcode::RENAME
        | opcode::RENAME2
        | opcode::LINK
        | opcode::TMPFILE
        | opcode::SETXATTR
        | opcode::REMOVEXATTR => Some(Effect::Once),
        // Steps of these may be committed before others, and the next server performs all of them again.
        opcode::SETATTR | opcode::WRITE | opcode::FALLOCATE | opcode::COPY_FILE_RANGE | opcode::IOCTL => {
            Some(Effect::Repeatable)
        }
        _ => None,
    }
}

impl Wire {
    /// Answers a request as [`answer`](Self::answer) does, in its turn if it has an effect.
    pub(super) fn answer_in_turn(
        &self,
        ledger: &Ledger,
        handler: Handler,
        header: &InHeader,
        body: RequestBody<'_>,
    ) {
        let pending = self.pending(header);
        let Some(effect) = effect(header.opcode) else {
            return BODY.with_borrow_mut(|out| {
                let done = self.run(handler, header, body, out);
                pending.answer(done.map(|()| out.bytes()));
            });
        };
        let turn = ledger.turn(effect);
        if let Some(reply) = ledger.reply_to(header.unique) {
            return pending.answer(reply.as_deref().map_err(|&error| error));
        }
        match effect {
            Effect::Lookups => BODY.with_borrow_mut(|out| {
                let done = self.run(handler, header, body, out);
                pending.answer(done.map(|()| out.bytes()));
            }),
            Effect::Once | Effect::Repeatable => self.change(ledger, effect, handler, header, body, pending),
        }
        drop(turn);
        if ledger.is_long() {
            let _turn = ledger.turn(Effect::Lookups);
            self.server.commit();
        }
    }

    /// Performs and publishes a change, and replies.
    fn change(
        &self,
        ledger: &Ledger,
        effect: Effect,
        handler: Handler,
        header: &InHeader,
        body: RequestBody<'_>,
        pending: Pending,
    ) {
        if effect == Effect::Once {
            // If the volume cannot be changed, the request itself fails.
            let _ = self.server.hold();
        }
        BODY.with_borrow_mut(|out| {
            let mut done = self.run(handler, header, body, out);
            ledger.note(header.unique, &done, out.bytes());
            if let Err(error) = self.server.publish() {
                ledger.give_up(&error);
                done = done.and(Err(Errno(libc::EIO)));
            }
            pending.answer(done.map(|()| out.bytes()));
        });
    }
}
