//! The option `--embed`: what makes vectors of texts, and for which root branch.

use std::ffi::OsString;
use std::path::PathBuf;

use super::exit::Exit;
use super::failure::CommandError;
use crate::embed::{EmbedError, Embedder, EmbedderSpec, holds_model};

/// The environment variable with the key of a server.
const KEY: &str = "ENGRAMFS_EMBED_KEY";
/// The environment variable with a folder of models.
const MODELS: &str = "ENGRAMFS_MODELS";

/// One `--embed [ROOT=]WHAT`.
pub struct EmbedOption {
    root: Option<String>,
    spec: EmbedderSpec,
}

impl EmbedOption {
    /// Parses all that were given; one root branch has one embedder. Exit code 2 where two are given for the same.
    pub fn parse_all(texts: &[String]) -> Result<Vec<EmbedOption>, CommandError> {
        let mut options: Vec<EmbedOption> = Vec::new();
        for text in texts {
            let option = EmbedOption::parse(text, &model_folders())?;
            if options.iter().any(|other| other.root == option.root) {
                let message = "--embed is given twice for the same root branches";
                return Err(CommandError::usage(message, "give one embedder, or write ROOT= before each"));
            }
            options.push(option);
        }
        Ok(options)
    }

    fn parse(text: &str, folders: &[PathBuf]) -> Result<EmbedOption, CommandError> {
        let is_root = |name: &str| crate::memory::check_name(name).is_ok() && !name.contains(':');
        let (root, what) = match text.split_once('=') {
            Some((root, what)) if is_root(root) => (Some(root.to_owned()), what),
            _ => (None, text),
        };
        let spec = EmbedderSpec::parse(what, folders).map_err(|error| failure(&error, Exit::Usage))?;
        Ok(EmbedOption { root, spec })
    }

    /// Returns the name of the root branch that it is for; `None` for all.
    pub fn root(&self) -> Option<&str> {
        self.root.as_deref()
    }

    /// Opens the embedder; a model is read whole. Fails if its folder or its address can't be used, with the hint of
    /// the embedder.
    pub fn open(&self) -> Result<Box<dyn Embedder>, CommandError> {
        self.spec.open(std::env::var(KEY).ok().as_deref()).map_err(|error| failure(&error, Exit::Failed))
    }
}

fn failure(error: &EmbedError, exit: Exit) -> CommandError {
    CommandError::new(exit, "bad_embedder", error.to_string(), error.hint())
}

/// Returns where models are looked for by name, in this order: `ENGRAMFS_MODELS`, the user's folder, the system's.
pub fn model_folders() -> Vec<PathBuf> {
    list_model_folders(std::env::var_os(MODELS), std::env::var_os("HOME"))
}

fn list_model_folders(set: Option<OsString>, home: Option<OsString>) -> Vec<PathBuf> {
    let home = home.map(|home| PathBuf::from(home).join(".local/share/engramfs/models"));
    set.map(PathBuf::from).into_iter().chain(home).chain([PathBuf::from("/usr/share/engramfs/models")]).collect()
}

/// Returns the folders of models in all those places, sorted by path; a place that can't be listed has none.
pub fn models() -> Vec<PathBuf> {
    let folders = model_folders();
    let inside = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    let mut found: Vec<PathBuf> = inside.map(|entry| entry.path()).filter(|path| holds_model(path)).collect();
    found.sort();
    found
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn an_embedder_is_for_all_root_branches_or_one() {
        let parse =
            |text: &str| EmbedOption::parse(text, &[]).map(|option| (option.root.clone(), option.spec.to_string()));
        assert_eq!(parse("cmd:serve").unwrap(), (None, "cmd:serve".to_owned()));
        assert_eq!(parse("main=cmd:serve a=b").unwrap(), (Some("main".to_owned()), "cmd:serve".to_owned()));
        assert_eq!(parse("cmd:x=1 serve").unwrap().0, None);
        assert_eq!(parse("http://h/v1?a=b#m").unwrap(), (None, "http://h/v1#m".to_owned()));
        assert_eq!(parse("team=/models/a=b").unwrap(), (Some("team".to_owned()), "/models/a=b".to_owned()));
        let error = parse("no-such-model").unwrap_err();
        assert_eq!((error.exit, &*error.code), (Exit::Usage, "bad_embedder"));
    }

    #[test]
    fn models_are_looked_for_in_the_places_of_the_page() {
        let page = include_str!("../../docs/SEMANTICS.md");
        let (_, places) = page.split_once("its name below `$ENGRAMFS_MODELS`").unwrap();
        let (places, _) = places.split_once(" (").unwrap();
        let places = places.split('`').skip(1).step_by(2).map(|place| PathBuf::from(place.replace('~', "/home/ann")));
        let found = list_model_folders(Some("/set".into()), Some("/home/ann".into()));
        assert_eq!(found, [PathBuf::from("/set")].into_iter().chain(places).collect::<Vec<_>>());
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn one_root_branch_has_one_embedder() {
        let parse =
            |texts: &[&str]| EmbedOption::parse_all(&texts.iter().map(|text| text.to_string()).collect::<Vec<_>>());
        assert_eq!(parse(&["main=cmd:a", "cmd:b"]).map(|options| options.len()).ok(), Some(2));
        assert!(parse(&["cmd:a", "cmd:b"]).is_err());
    }
}
