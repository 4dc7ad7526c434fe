//! Requests of a mount that survives a failure of its server (`-o failover`).
//!
//! One request at a time changes the volume. Its changes and its reply are in the ledger before the reply is sent, so
//! that the next server sends the same reply if the kernel sends the request again.

use obento_base::Errno;

use super::abi::{InHeader, opcode};
use super::forgets::Attempt;
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
    /// Does what [`try_to_answer`](Self::try_to_answer) does, in its turn if the request has an effect.
    pub(super) fn answer_in_turn(
        &self,
        ledger: &Ledger,
        attempt: Attempt,
        handler: Handler,
        header: &InHeader,
        body: RequestBody<'_>,
    ) -> bool {
        let answer = || {
            BODY.with_borrow_mut(|out| {
                let done = self.run(handler, header, body, out);
                self.pending(header).answer(done.map(|()| out.bytes()));
            });
            true
        };
        let Some(effect) = effect(header.opcode) else { return answer() };
        let turn = ledger.turn(effect);
        if let Some(reply) = ledger.reply_to(header.unique) {
            self.pending(header).answer(reply.as_deref().map_err(|&error| error));
            return true;
        }
        let is_answered = match effect {
            Effect::Lookups => answer(),
            Effect::Once | Effect::Repeatable => self.change(ledger, effect, attempt, handler, header, body),
        };
        drop(turn);
        if ledger.is_long() {
            let _turn = ledger.turn(Effect::Lookups);
            self.server.commit();
        }
        is_answered
    }

    /// Performs and publishes a change, and replies. Returns `false` without a reply if the change is to be repeated,
    /// since it has changed nothing.
    fn change(
        &self,
        ledger: &Ledger,
        effect: Effect,
        attempt: Attempt,
        handler: Handler,
        header: &InHeader,
        body: RequestBody<'_>,
    ) -> bool {
        if effect == Effect::Once {
            // If the volume cannot be changed, the request itself fails.
            let _ = self.server.hold();
        }
        BODY.with_borrow_mut(|out| {
            let mut done = self.call(handler, header, body, out);
            let is_answered = !attempt.is_to_be_repeated(header, body, done);
            if is_answered {
                self.note_end(header, body, done);
                ledger.note(header.unique, &done, out.bytes());
            }
            if let Err(error) = self.server.publish() {
                ledger.give_up(&error);
                done = done.and(Err(Errno(libc::EIO)));
            }
            if is_answered {
                self.pending(header).answer(done.map(|()| out.bytes()));
            }
            is_answered
        })
    }
}
