//! What the text of one function needs to know.

use std::collections::{HashMap, HashSet};

use naga::{
    Expression, Function, Handle, LocalVariable, TypeInner,
    proc::{EntryPointIndex, NameKey, TypeResolution},
    valid::FunctionInfo,
};

use super::Writer;

/// A function, or the function of an entry point.
#[derive(Clone, Copy)]
pub(super) enum Owner {
    Function(Handle<Function>),
    Entry(EntryPointIndex),
}

/// What `continue` is inside a loop.
pub(super) enum Continue {
    /// The statement of C++: the step stands in the loop's head.
    Native,
    /// A jump past the inner block, to the continuing part; whether it was used.
    Label(String),
}

/// A function while it is written.
pub(super) struct Body<'a> {
    pub function: &'a Function,
    pub info: &'a FunctionInfo,
    owner: Owner,
    /// Expressions that have a variable.
    pub baked: HashMap<Handle<Expression>, String>,
    /// Expressions that stand in the head of a loop, where they are computed anew in each round: nowhere else.
    pub headed: HashSet<Handle<Expression>>,
    /// Whether the head of a loop is being written.
    pub in_head: bool,
    pub loops: Vec<Continue>,
    pub n_labels: usize,
    /// Indentation.
    pub level: usize,
}

impl<'a> Body<'a> {
    pub(super) fn new(function: &'a Function, info: &'a FunctionInfo, owner: Owner) -> Self {
        Self {
            function,
            info,
            owner,
            baked: HashMap::new(),
            headed: HashSet::new(),
            in_head: false,
            loops: Vec::new(),
            n_labels: 0,
            level: 1,
        }
    }

    pub(super) fn local_key(&self, local: Handle<LocalVariable>) -> NameKey {
        match self.owner {
            Owner::Function(f) => NameKey::FunctionLocal(f, local),
            Owner::Entry(i) => NameKey::EntryPointLocal(i, local),
        }
    }

    pub(super) fn argument_key(&self, index: u32) -> NameKey {
        match self.owner {
            Owner::Function(f) => NameKey::FunctionArgument(f, index),
            Owner::Entry(i) => NameKey::EntryPointArgument(i, index),
        }
    }

    pub(super) fn resolution(&self, e: Handle<Expression>) -> &'a TypeResolution {
        &self.info[e].ty
    }
}

impl<'a> Writer<'a> {
    /// The type of an expression.
    pub(super) fn inner(&self, body: &Body<'a>, e: Handle<Expression>) -> &'a TypeInner {
        body.resolution(e).inner_with(&self.module.types)
    }
}
