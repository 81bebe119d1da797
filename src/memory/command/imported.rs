//! What a dump says of a branch that no other command brings about.

use std::sync::Arc;

use crate::memory::catalog::agents::AgentHolder;
use crate::memory::catalog::settings::Settings;
use crate::object::{CodecError, Reader, Writer};

/// One thing that a branch had in the store that it comes from.
#[derive(Clone, Debug)]
pub enum ImportedState {
    /// Its settings, whoever wrote them; no session of signals ends by that.
    Settings(Settings),
    /// The name of an agent below it, a root branch, and who may use that; `None` for a name that is free.
    Agent(Arc<str>, Option<AgentHolder>),
    /// What is now the log of its own was that of a branch that has ended, of this name with its number.
    ClosedLog(Arc<str>),
    /// The last entry of its shared log when it got its base, behind which a gate looks for a summary.
    LogAtBase(u64),
}

impl ImportedState {
    /// Returns the word for it in its entry, and its name, if a branch may have several.
    pub fn label(&self) -> (&'static str, Option<Arc<str>>) {
        match self {
            ImportedState::Settings(_) => ("settings", None),
            ImportedState::Agent(name, _) => ("agent_name", Some(name.clone())),
            ImportedState::ClosedLog(name) => ("closed_log", Some(name.clone())),
            ImportedState::LogAtBase(entry) => ("log_at_base", Some(entry.to_string().into())),
        }
    }

    /// Appends the stored form: a code from 1, and what the variant has.
    pub fn write<'a>(&self, out: &'a mut Writer) -> &'a mut Writer {
        match self {
            ImportedState::Settings(settings) => {
                settings.write(out.byte(1));
                out
            }
            ImportedState::Agent(name, holder) => {
                let out = out.byte(2).text(name).byte(u8::from(holder.is_some()));
                holder.iter().fold(out, |out, holder| holder.write(out))
            }
            ImportedState::ClosedLog(name) => out.byte(3).text(name),
            ImportedState::LogAtBase(entry) => out.byte(4).number(*entry),
        }
    }

    /// Reads the stored form. [`CodecError::Code`] for what this version can't import.
    pub fn read(input: &mut Reader<'_>) -> Result<ImportedState, CodecError> {
        match input.byte()? {
            1 => Ok(ImportedState::Settings(Settings::read(input)?)),
            2 => {
                let (name, is_held) = (input.text()?.into(), input.byte()? == 1);
                Ok(ImportedState::Agent(name, is_held.then(|| AgentHolder::read(input)).transpose()?))
            }
            3 => Ok(ImportedState::ClosedLog(input.text()?.into())),
            4 => Ok(ImportedState::LogAtBase(input.number()?)),
            code => Err(CodecError::Code(code)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_imported_is_called_as_histories_have_it() {
        for (state, name, which) in [
            (ImportedState::Settings(Settings::default()), "settings", None),
            (ImportedState::Agent("ann".into(), None), "agent_name", Some("ann")),
            (ImportedState::ClosedLog("case@7".into()), "closed_log", Some("case@7")),
            (ImportedState::LogAtBase(42), "log_at_base", Some("42")),
        ] {
            let (label, text) = state.label();
            assert_eq!((label, text.as_deref()), (name, which));
        }
    }
}
