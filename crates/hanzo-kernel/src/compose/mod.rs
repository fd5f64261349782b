//! From the files of a kernel to one WGSL module.
//!
//! A kernel is a file of `wgsl/`. Its directives are comments, so that the file is plain WGSL to an editor:
//!
//! ```wgsl
//! //@import reduce            the file wgsl/reduce.wgsl, once
//! //@import <format>          what the caller put into the slot `format`
//! //@formats Q4_K Q5_K        which formats a file of format/ decodes; ignored here
//! //@if MOE && CORE != int8   lines up to `//@elif`, `//@else` or `//@end` only if the condition holds
//! ```
//!
//! Conditions look at the injected constants (see [`condition`]); a name that nobody injected is an error, not false.
//! Constants appear at the top of the module as `const NAME: u32 = 8u;`, and lines with `enable` and `requires`, which
//! WGSL wants first, move above them. Every line of the module remembers the file and line it came from.

mod condition;

use std::fmt::Write;

use crate::{Error, Result, source};

/// The value of an injected constant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// `const NAME: bool`.
    Bool(bool),
    /// `const NAME: u32`.
    U32(u32),
    /// A word for conditions (`//@if CORE == int8`) that does not appear in the module.
    Word(&'static str),
}

/// What a slot is filled with: a file of `wgsl/`, or text made for the occasion.
#[derive(Clone, Debug)]
pub enum Slot {
    /// A file of `wgsl/`.
    File(&'static str),
    /// Generated text and what errors call it.
    Text {
        /// The name in errors.
        name: String,
        /// The text.
        text: String,
    },
}

/// A kernel and everything that specialises it.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// The specialisation's name, an identifier: entry point of the texts that name it, key of caches.
    pub name: String,
    /// The kernel's file below `wgsl/`, without the extension.
    pub file: &'static str,
    /// Injected constants.
    pub constants: Vec<(&'static str, Value)>,
    /// What `//@import <name>` means.
    pub slots: Vec<(&'static str, Slot)>,
}

/// Where a line came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// A file (`wgsl/add.wgsl`) or the name of generated text.
    pub file: String,
    /// From 1.
    pub line: usize,
}

/// A module's text with the origin of each line.
#[derive(Clone, Debug)]
pub struct Composed {
    /// The specialisation's name.
    pub name: String,
    /// WGSL.
    pub text: String,
    origins: Vec<Origin>,
}

impl Composed {
    /// Text that is a whole module already, for tests and tools.
    pub fn from_text(name: &str, text: &str) -> Self {
        let n_lines = text.lines().count().max(1);
        let origins = (1..=n_lines).map(|line| Origin { file: name.into(), line }).collect();
        Self { name: name.into(), text: text.into(), origins }
    }

    /// The origin of the line at a byte offset of the text.
    pub fn origin(&self, offset: usize) -> &Origin {
        let before = &self.text.as_bytes()[..offset.min(self.text.len())];
        let line = before.iter().filter(|&&b| b == b'\n').count();
        &self.origins[line.min(self.origins.len() - 1)]
    }
}

/// Composes a kernel.
///
/// # Errors
/// A directive that makes no sense, an import that does not exist, with file and line.
pub fn compose(recipe: &Recipe) -> Result<Composed> {
    let mut composer = Composer { recipe, enables: Vec::new(), lines: Vec::new(), imported: Vec::new() };
    let file = source::find(recipe.file)
        .ok_or_else(|| Error::kernel(&recipe.name, format!("there is no file wgsl/{}.wgsl", recipe.file)))?;
    composer.take(&path_of(file.name), file.text)?;
    Ok(composer.finish())
}

fn path_of(name: &str) -> String {
    format!("wgsl/{name}.wgsl")
}

struct Composer<'a> {
    recipe: &'a Recipe,
    enables: Vec<(String, Origin)>,
    lines: Vec<(String, Origin)>,
    imported: Vec<String>,
}

/// An open `//@if`.
struct Branch {
    line: usize,
    /// Whether lines are taken here, the branches around it aside.
    taken: bool,
    /// Whether one of its branches was taken already.
    done: bool,
    /// Whether `//@else` was seen.
    last: bool,
}

impl Composer<'_> {
    fn take(&mut self, file: &str, text: &str) -> Result<()> {
        let mut branches: Vec<Branch> = Vec::new();
        for (i, line) in text.lines().enumerate() {
            let at = i + 1;
            let live = branches.iter().all(|b| b.taken);
            match line.trim().strip_prefix("//@") {
                Some(directive) => self.obey(file, at, directive.trim(), &mut branches, live)?,
                None if live => self.put(line, Origin { file: file.into(), line: at }),
                None => {}
            }
        }
        match branches.last() {
            Some(open) => Err(Error::source(file, open.line, "this `if` has no `end`")),
            None => Ok(()),
        }
    }

    fn put(&mut self, line: &str, origin: Origin) {
        let is_enable = line.starts_with("enable ") || line.starts_with("requires ");
        if !is_enable {
            self.lines.push((line.into(), origin));
        } else if self.enables.iter().all(|(known, _)| known != line) {
            self.enables.push((line.into(), origin));
        }
    }

    fn obey(
        &mut self,
        file: &str,
        at: usize,
        directive: &str,
        open: &mut Vec<Branch>,
        live: bool,
    ) -> Result<()> {
        let error = |what: String| Error::source(file, at, what);
        let holds =
            |text: &str| condition::holds(text, &self.recipe.constants).map_err(|what| error(what.clone()));
        let (word, rest) = directive.split_once(' ').map_or((directive, ""), |(w, r)| (w, r.trim()));
        match word {
            "import" if live => return self.import(file, at, rest),
            // What is not taken may name constants that this specialisation lacks.
            "import" | "formats" => {}
            "if" => {
                let taken = live && holds(rest)?;
                open.push(Branch { line: at, taken, done: taken, last: false });
            }
            "elif" | "else" => {
                let around = open.iter().rev().skip(1).all(|b| b.taken);
                let branch = open
                    .last_mut()
                    .filter(|b| !b.last)
                    .ok_or_else(|| error(format!("`{word}` without `if`")))?;
                branch.taken = around && !branch.done && (word == "else" || holds(rest)?);
                branch.done |= branch.taken;
                branch.last = word == "else";
            }
            "end" => {
                open.pop().ok_or_else(|| error("`end` without `if`".into()))?;
            }
            _ => return Err(error(format!("`{word}` is no directive"))),
        }
        Ok(())
    }

    fn import(&mut self, file: &str, at: usize, name: &str) -> Result<()> {
        if self.imported.iter().any(|known| known == name) {
            return Ok(());
        }
        self.imported.push(name.into());
        let slot = match name.strip_prefix('<').and_then(|n| n.strip_suffix('>')) {
            None => None,
            Some(slot) => {
                let filled = self.recipe.slots.iter().find(|(n, _)| *n == slot);
                let (_, slot) = filled
                    .ok_or_else(|| Error::source(file, at, format!("nothing fills the slot <{slot}>")))?;
                Some(slot)
            }
        };
        let name = match slot {
            Some(Slot::Text { name, text }) => return self.take(name, text),
            Some(Slot::File(name)) => name,
            None => name,
        };
        let found = source::find(name)
            .ok_or_else(|| Error::source(file, at, format!("there is no file {}", path_of(name))))?;
        self.take(&path_of(name), found.text)
    }

    fn finish(self) -> Composed {
        let mut text = String::new();
        let mut origins = Vec::new();
        let mut put = |line: &str, origin: Origin| {
            text.push_str(line);
            text.push('\n');
            origins.push(origin);
        };
        for (line, origin) in self.enables {
            put(&line, origin);
        }
        for (i, (name, value)) in self.recipe.constants.iter().enumerate() {
            let mut line = String::new();
            // Writing to a string cannot fail.
            let _ = match value {
                Value::Bool(v) => write!(line, "const {name}: bool = {v};"),
                Value::U32(v) => write!(line, "const {name}: u32 = {v}u;"),
                Value::Word(v) => write!(line, "// {name} is {v}"),
            };
            put(&line, Origin { file: format!("constants of {}", self.recipe.name), line: i + 1 });
        }
        for (line, origin) in self.lines {
            put(&line, origin);
        }
        Composed { name: self.recipe.name.clone(), text, origins }
    }
}
