//! Calls of sessions.

use std::ffi::{CStr, c_char};
use std::ptr::{null, null_mut};

use super::choices::Choices;
use super::owned::{Owned, owned};
use super::{Target, checked, elements};
use crate::{
    NamedSize, SessionHandle, Status, TensorHandle, View, corsac_model_program_count,
    corsac_model_program_name, corsac_model_state, corsac_model_state_count, corsac_session_fork,
    corsac_session_free, corsac_session_new, corsac_session_reset, corsac_session_resize,
    corsac_session_run, corsac_session_run_into, corsac_session_set_state, corsac_session_state,
    corsac_tensor_free, corsac_tensor_view,
};

/// A session that is freed.
struct Own(*mut SessionHandle);

impl Drop for Own {
    fn drop(&mut self) {
        // SAFETY: it is null, or a session that is used no more.
        unsafe { corsac_session_free(self.0) };
    }
}

/// A size, mostly a small one.
fn size(choices: &mut Choices<'_>) -> usize {
    match choices.rarely() {
        true => choices.number() as usize | (usize::MAX / 4 + 1),
        false => choices.below(5).into(),
    }
}

impl Target {
    /// Makes sessions, and calls of them, that `bytes` choose, of a model whose state has the sizes `names`. Wrong
    /// calls are errors; right ones have the same results into memory of the caller and
    /// of the library. Returns how many were right.
    ///
    /// # Panics
    /// If a call breaks its promises.
    pub fn session_calls(&self, names: &[&CStr], bytes: &[u8]) -> usize {
        let (mut choices, mut right) = (Choices(bytes), 0);
        while !choices.0.is_empty() {
            let mut sizes: Vec<NamedSize> = Vec::new();
            for name in names {
                let (name, value) = (name.as_ptr(), size(&mut choices));
                sizes.push(NamedSize { name, value });
            }
            let count = sizes.len() - usize::from(choices.rarely() && !sizes.is_empty());
            let mut session = Own(null_mut());
            let made = checked(|error| {
                // SAFETY: there are as many sizes, and a place for the session.
                unsafe {
                    let place = &mut session.0;
                    corsac_session_new(self.0, sizes.as_ptr(), count, place, error)
                }
            });
            assert_eq!(made == Status::Ok, !session.0.is_null());
            for _ in 0..choices.below(8) {
                if made == Status::Ok {
                    right += usize::from(self.session_call(session.0, &mut sizes, &mut choices));
                }
            }
        }
        right
    }

    fn session_call(
        &self,
        session: *mut SessionHandle,
        sizes: &mut [NamedSize],
        choices: &mut Choices<'_>,
    ) -> bool {
        match choices.below(8) {
            0 => {
                let at = usize::from(choices.byte()) % sizes.len().max(1);
                if let Some(own) = sizes.get_mut(at) {
                    own.value = size(choices);
                }
                // SAFETY: there are as many sizes.
                let resize = |error| unsafe {
                    corsac_session_resize(session, sizes.as_ptr(), sizes.len(), error)
                };
                checked(resize) == Status::Ok
            }
            // SAFETY: it is a session.
            1 => checked(|error| unsafe { corsac_session_reset(session, error) }) == Status::Ok,
            2 => self.replace_state(session, choices),
            _ => self.run(session, choices),
        }
    }

    /// The names of the state.
    fn state_names(&self) -> Vec<*const c_char> {
        // SAFETY: it is a model, with these specs.
        unsafe {
            let numbers = 0..corsac_model_state_count(self.0);
            let specs = numbers.map(|number| corsac_model_state(self.0, number));
            specs.map(|spec| (*spec).name).collect()
        }
    }

    /// The elements of all state.
    fn state_of(&self, session: *mut SessionHandle) -> Vec<Vec<u8>> {
        let names = self.state_names().into_iter();
        names
            .map(|name| {
                let mut tensor = null_mut();
                // SAFETY: it is a session, with state of this name; the tensor is freed once.
                unsafe {
                    let status =
                        checked(|error| corsac_session_state(session, name, &mut tensor, error));
                    assert_eq!(status, Status::Ok);
                    let bytes = elements(&*corsac_tensor_view(tensor));
                    corsac_tensor_free(tensor);
                    bytes
                }
            })
            .collect()
    }

    /// Replaces state by that of another name, mostly the same.
    fn replace_state(&self, session: *mut SessionHandle, choices: &mut Choices<'_>) -> bool {
        let names = self.state_names();
        let from = usize::from(choices.byte()) % names.len();
        let to = if choices.rarely() { 0 } else { from };
        let mut tensor = null_mut();
        let before = self.state_of(session);
        // SAFETY: it is a session, with state of these names; the tensor is freed once.
        let status = unsafe {
            checked(|error| corsac_session_state(session, names[from], &mut tensor, error));
            let view = corsac_tensor_view(tensor);
            let status = checked(|error| corsac_session_set_state(session, names[to], view, error));
            corsac_tensor_free(tensor);
            status
        };
        assert_eq!(self.state_of(session), before);
        status == Status::Ok
    }

    /// Runs a program in the session and, into memory of the caller, in a fork of it.
    fn run(&self, session: *mut SessionHandle, choices: &mut Choices<'_>) -> bool {
        let mut fork = Own(null_mut());
        // SAFETY: it is a session, and there is a place for another.
        let forked = checked(|error| unsafe { corsac_session_fork(session, &mut fork.0, error) });
        assert_eq!(forked, Status::Ok);
        // SAFETY: it is a model.
        let number = usize::from(choices.byte()) % unsafe { corsac_model_program_count(self.0) };
        let program = match number {
            0 => null(),
            // SAFETY: it is a model, with this program.
            _ => unsafe { corsac_model_program_name(self.0, number) },
        };
        // Only inputs and outputs of the first program are known.
        let inputs = if number == 0 {
            self.inputs()
        } else {
            Vec::new()
        };
        let mut inputs = owned(inputs, choices);
        let inputs: Vec<View> = inputs.iter_mut().map(Owned::view).collect();
        let count = if number == 0 { self.outputs().len() } else { 1 };
        let mut tensors: Vec<*mut TensorHandle> = vec![null_mut(); count];
        let allocated = checked(|error| {
            let (from, to) = (inputs.as_ptr(), tensors.as_mut_ptr());
            // SAFETY: views are of memory as large as they say, and there is a place for each result.
            unsafe { corsac_session_run(session, program, from, inputs.len(), to, count, error) }
        });
        if allocated != Status::Ok {
            return false;
        }
        // SAFETY: they are tensors, with their views.
        let views: Vec<View> = tensors
            .iter()
            .map(|&own| unsafe { *corsac_tensor_view(own) })
            .collect();
        let expected: Vec<Vec<u8>> = views.iter().map(elements).collect();
        let written = checked(|error| {
            let (from, to) = (inputs.as_ptr(), views.as_ptr());
            // SAFETY: views are of memory as large as they say; tensors are not used otherwise.
            unsafe {
                corsac_session_run_into(fork.0, program, from, inputs.len(), to, count, error)
            }
        });
        assert_eq!(written, Status::Ok);
        assert_eq!(views.iter().map(elements).collect::<Vec<_>>(), expected);
        assert_eq!(self.state_of(fork.0), self.state_of(session));
        for tensor in tensors {
            // SAFETY: it is a tensor, which is freed once.
            unsafe { corsac_tensor_free(tensor) };
        }
        true
    }
}
