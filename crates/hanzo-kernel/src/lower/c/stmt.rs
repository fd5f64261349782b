//! Statements.

use naga::{
    AtomicFunction, Barrier, Block, Expression, Function, Handle, Statement, SwitchCase, SwitchValue,
    TypeInner, proc::NameKey,
};

use super::{
    Result, Writer,
    body::{Body, Continue},
    expr::bare,
    unsupported,
};

impl<'a> Writer<'a> {
    pub(super) fn statements(&mut self, body: &mut Body<'a>, statements: &'a [Statement]) -> Result<()> {
        statements.iter().try_for_each(|s| self.statement(body, s))
    }

    /// Statements at the end of a function without a result, whose last returns the parser has written out.
    pub(super) fn last_statements(&mut self, body: &mut Body<'a>, statements: &'a [Statement]) -> Result<()> {
        let Some((last, before)) = statements.split_last() else { return Ok(()) };
        self.statements(body, before)?;
        match last {
            Statement::Return { value: None } => Ok(()),
            Statement::If { condition, accept, reject } => {
                self.if_statement(body, *condition, accept, reject, true)
            }
            other => self.statement(body, other),
        }
    }

    /// A block in braces; the opening line is the caller's.
    fn braced(&mut self, body: &mut Body<'a>, block: &'a Block, is_last: bool) -> Result<()> {
        body.level += 1;
        if is_last {
            self.last_statements(body, block)?;
        } else {
            self.statements(body, block)?;
        }
        body.level -= 1;
        Ok(())
    }

    fn statement(&mut self, body: &mut Body<'a>, statement: &'a Statement) -> Result<()> {
        let level = body.level;
        match *statement {
            Statement::Emit(ref range) => {
                return range.clone().try_for_each(|e| self.emit(body, e));
            }
            Statement::Block(ref block) => {
                self.line(level, "{");
                self.braced(body, block, false)?;
                self.line(level, "}");
            }
            Statement::If { condition, ref accept, ref reject } => {
                self.if_statement(body, condition, accept, reject, false)?;
            }
            Statement::Switch { selector, ref cases } => self.switch(body, selector, cases)?,
            Statement::Loop { body: ref block, ref continuing, break_if } => {
                self.loop_statement(body, block, continuing, break_if)?;
            }
            Statement::Break => self.line(level, "break;"),
            Statement::Continue => match body.loops.last() {
                Some(Continue::Label(label)) => {
                    let text = format!("goto {label};");
                    self.line(level, text);
                }
                Some(Continue::Native) | None => self.line(level, "continue;"),
            },
            Statement::Return { value: None } => self.line(level, "return;"),
            Statement::Return { value: Some(value) } => {
                let value = self.expr(body, value)?;
                self.line(level, format!("return {};", bare(&value)));
            }
            Statement::ControlBarrier(barrier) => self.line(level, control_barrier(barrier)?),
            Statement::MemoryBarrier(_) => self.line(level, "fence();"),
            Statement::Store { pointer, value } => self.store(body, pointer, value)?,
            Statement::Atomic { pointer, ref fun, value, result } => {
                self.atomic(body, pointer, *fun, value, result)?;
            }
            Statement::WorkGroupUniformLoad { pointer, result } => {
                let place = self.expr(body, pointer)?;
                self.line(level, "barrier();");
                self.bind(body, result, &place)?;
                self.line(level, "barrier();");
            }
            Statement::Call { function, ref arguments, result } => {
                self.call(body, function, arguments, result)?;
            }
            Statement::SubgroupBallot { result, predicate } => self.ballot(body, result, predicate)?,
            Statement::SubgroupGather { mode, argument, result } => {
                self.gather(body, mode, argument, result)?;
            }
            Statement::SubgroupCollectiveOperation { op, collective_op, argument, result } => {
                self.collective(body, op, collective_op, argument, result)?;
            }
            Statement::CooperativeStore { target, ref data } => self.matrix_store(body, target, data)?,
            ref other => return unsupported("statement", other),
        }
        Ok(())
    }

    /// Gives an expression a variable if it must be computed here and now, if it is used more than once, or if WGSL
    /// named it.
    fn emit(&mut self, body: &mut Body<'a>, e: Handle<Expression>) -> Result<()> {
        // A place is written where it is used.
        if matches!(self.inner(body, e), TypeInner::Pointer { .. } | TypeInner::ValuePointer { .. }) {
            return Ok(());
        }
        let n_uses_min = match body.function.expressions[e] {
            Expression::Access { .. } | Expression::AccessIndex { .. } => usize::MAX,
            Expression::Load { .. }
            | Expression::CooperativeLoad { .. }
            | Expression::CooperativeMultiplyAdd { .. } => 1,
            _ => 2,
        };
        let n_uses = body.info[e].ref_count;
        let is_named = body.function.named_expressions.contains_key(&e);
        if n_uses >= n_uses_min || is_named && n_uses > 0 {
            let value = self.expr(body, e)?;
            self.bind(body, e, bare(&value))?;
        }
        Ok(())
    }

    /// `const T name = value;`
    pub(super) fn bind(&mut self, body: &mut Body<'a>, e: Handle<Expression>, value: &str) -> Result<()> {
        // The namer ends every name that ends in a digit with `_`, so `e7` is no other's.
        let name = match body.function.named_expressions.get(&e) {
            Some(name) => self.namer.call(name),
            None => format!("e{}", e.index()),
        };
        let ty = self.resolution_name(body.resolution(e))?;
        self.line(body.level, format!("const {ty} {name} = {value};"));
        body.baked.insert(e, name);
        Ok(())
    }

    /// The same for a result that may not be wanted.
    fn bind_or_drop(
        &mut self,
        body: &mut Body<'a>,
        result: Option<Handle<Expression>>,
        value: &str,
    ) -> Result<()> {
        match result {
            Some(result) => self.bind(body, result, value),
            None => {
                self.line(body.level, format!("{value};"));
                Ok(())
            }
        }
    }

    fn if_statement(
        &mut self,
        body: &mut Body<'a>,
        condition: Handle<Expression>,
        accept: &'a Block,
        reject: &'a Block,
        is_last: bool,
    ) -> Result<()> {
        let condition = self.expr(body, condition)?;
        let is_empty = |b: &Block| match b[..] {
            [Statement::Return { value: None }] => is_last,
            ref other => other.is_empty(),
        };
        if is_empty(accept) && !is_empty(reject) {
            self.line(body.level, format!("if (!({})) {{", bare(&condition)));
            self.braced(body, reject, is_last)?;
        } else {
            self.line(body.level, format!("if ({}) {{", bare(&condition)));
            self.braced(body, accept, is_last)?;
            if !is_empty(reject) {
                self.line(body.level, "} else {");
                self.braced(body, reject, is_last)?;
            }
        }
        self.line(body.level, "}");
        Ok(())
    }

    fn switch(
        &mut self,
        body: &mut Body<'a>,
        selector: Handle<Expression>,
        cases: &'a [SwitchCase],
    ) -> Result<()> {
        let level = body.level;
        let selector = self.expr(body, selector)?;
        self.line(level, format!("switch ({}) {{", bare(&selector)));
        for case in cases {
            let label = match case.value {
                SwitchValue::I32(v) => format!("case {v}:"),
                SwitchValue::U32(v) => format!("case {v}u:"),
                SwitchValue::Default => "default:".into(),
            };
            if case.fall_through && case.body.is_empty() {
                self.line(level, label);
                continue;
            }
            self.line(level, format!("{label} {{"));
            self.braced(body, &case.body, false)?;
            if !case.fall_through && !matches!(case.body.last(), Some(Statement::Break)) {
                self.line(level + 1, "break;");
            }
            self.line(level, "}");
        }
        self.line(level, "}");
        Ok(())
    }

    fn store(
        &mut self,
        body: &Body<'a>,
        pointer: Handle<Expression>,
        value: Handle<Expression>,
    ) -> Result<()> {
        let (place, value) = (self.expr(body, pointer)?, self.expr(body, value)?);
        let value = bare(&value);
        let text = if self.is_atomic(body, pointer) {
            format!("atomic_store(&{place}, {value});")
        } else {
            format!("{place} = {value};")
        };
        self.line(body.level, text);
        Ok(())
    }

    fn atomic(
        &mut self,
        body: &mut Body<'a>,
        pointer: Handle<Expression>,
        fun: AtomicFunction,
        value: Handle<Expression>,
        result: Option<Handle<Expression>>,
    ) -> Result<()> {
        let (place, value) = (self.expr(body, pointer)?, self.expr(body, value)?);
        let value = bare(&value);
        let name = match fun {
            AtomicFunction::Add => "add",
            AtomicFunction::Subtract => "sub",
            AtomicFunction::And => "and",
            AtomicFunction::ExclusiveOr => "xor",
            AtomicFunction::InclusiveOr => "or",
            AtomicFunction::Min => "min",
            AtomicFunction::Max => "max",
            AtomicFunction::Exchange { compare: None } => "exchange",
            AtomicFunction::Exchange { compare: Some(compare) } => {
                let Some(result) = result else { return unsupported("atomic without a result", fun) };
                let ty = self.resolution_name(body.resolution(result))?;
                let compare = self.expr(body, compare)?;
                let text = format!("atomic_compare_exchange<{ty}>(&{place}, {}, {value})", bare(&compare));
                return self.bind(body, result, &text);
            }
        };
        self.bind_or_drop(body, result, &format!("atomic_{name}(&{place}, {value})"))
    }

    /// A call; the globals that the callee uses come after its arguments.
    fn call(
        &mut self,
        body: &mut Body<'a>,
        function: Handle<Function>,
        arguments: &[Handle<Expression>],
        result: Option<Handle<Expression>>,
    ) -> Result<()> {
        let mut list = arguments.iter().map(|&a| self.expr(body, a)).collect::<Result<Vec<_>>>()?;
        if self.intrinsic(function).is_none() {
            let uses = &self.info[function];
            let used = self.module.global_variables.iter().filter(|&(g, _)| !uses[g].is_empty());
            list.extend(used.map(|(g, _)| self.name(&NameKey::GlobalVariable(g)).to_owned()));
        }
        let list: Vec<_> = list.iter().map(|a| bare(a)).collect();
        let name = match self.intrinsic(function) {
            Some(name) => name,
            None => self.name(&NameKey::Function(function)),
        };
        let text = format!("{name}({})", list.join(", "));
        self.bind_or_drop(body, result, &text)
    }
}

fn control_barrier(barrier: Barrier) -> Result<&'static str> {
    if barrier == Barrier::SUB_GROUP {
        Ok("wave_barrier();")
    } else if barrier.intersects(Barrier::WORK_GROUP | Barrier::STORAGE) {
        Ok("barrier();")
    } else {
        unsupported("barrier", barrier)
    }
}
