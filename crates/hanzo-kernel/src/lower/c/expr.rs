//! Expressions.

use naga::{
    BinaryOperator, Expression, Handle, RelationalFunction, Scalar, ScalarKind, SwizzleComponent, TypeInner,
    UnaryOperator, VectorSize,
    proc::{NameKey, TypeResolution},
};

use super::{Result, Writer, body::Body, types, unsupported};

const COMPONENTS: [&str; 4] = ["x", "y", "z", "w"];

/// Without the parentheses around all of it, where no operator stands beside it.
pub(super) fn bare(text: &str) -> &str {
    let Some(inner) = text.strip_prefix('(').and_then(|t| t.strip_suffix(')')) else { return text };
    let mut depth = 0i32;
    for c in inner.chars() {
        depth += i32::from(c == '(') - i32::from(c == ')');
        if depth < 0 {
            return text;
        }
    }
    inner
}

impl<'a> Writer<'a> {
    /// An expression: its variable, or its text.
    pub(super) fn expr(&self, body: &Body<'a>, e: Handle<Expression>) -> Result<String> {
        if let Some(name) = body.baked.get(&e) {
            return Ok(name.clone());
        }
        if body.headed.contains(&e) && !body.in_head {
            return unsupported("use outside of the loop's head of", &body.function.expressions[e]);
        }
        self.raw(body, e)
    }

    /// Several expressions, separated by commas.
    pub(super) fn list(&self, body: &Body<'a>, es: &[Handle<Expression>]) -> Result<String> {
        let parts = es.iter().map(|&e| Ok(bare(&self.expr(body, e)?).to_owned()));
        Ok(parts.collect::<Result<Vec<_>>>()?.join(", "))
    }

    /// An expression as the text of its operation.
    pub(super) fn raw(&self, body: &Body<'a>, e: Handle<Expression>) -> Result<String> {
        let x = |e| self.expr(body, e);
        let bare_x = |e| x(e).map(|t| bare(&t).to_owned());
        Ok(match body.function.expressions[e] {
            Expression::Literal(l) => types::literal(l)?,
            Expression::Constant(c) if self.is_table(self.module.constants[c].ty) => {
                self.name(&NameKey::Constant(c)).into()
            }
            Expression::Constant(c) => self.constant(self.module.constants[c].init)?,
            Expression::ZeroValue(ty) => format!("{}{{}}", self.type_name(ty)?),
            Expression::Compose { ty, ref components } => self.compose(body, ty, components)?,
            Expression::Splat { size, value } => format!("splat{}({})", size as u8, bare_x(value)?),
            Expression::Access { base, index } => format!("{}[{}]", x(base)?, bare_x(index)?),
            Expression::AccessIndex { base, index } => self.access_index(body, base, index)?,
            Expression::Swizzle { size, vector, pattern } => self.swizzle(body, size, vector, pattern)?,
            Expression::FunctionArgument(i) => self.name(&body.argument_key(i)).into(),
            Expression::GlobalVariable(g) => self.global_place(g),
            Expression::LocalVariable(l) => self.name(&body.local_key(l)).into(),
            Expression::Load { pointer } if self.is_atomic(body, pointer) => {
                format!("atomic_load(&{})", x(pointer)?)
            }
            Expression::Load { pointer } => x(pointer)?,
            Expression::Unary { op, expr } => format!("({}{})", unary(op), x(expr)?),
            Expression::Binary { op, left, right } => self.binary(body, e, op, left, right)?,
            Expression::Select { condition, accept, reject } => {
                if matches!(self.inner(body, condition), TypeInner::Vector { .. }) {
                    format!("select({})", self.list(body, &[condition, accept, reject])?)
                } else {
                    format!("({} ? {} : {})", x(condition)?, x(accept)?, x(reject)?)
                }
            }
            Expression::Relational { fun, argument } => {
                format!("{}({})", relational(fun), bare_x(argument)?)
            }
            Expression::Math { fun, arg, arg1, arg2, arg3 } => {
                let args: Vec<_> = [Some(arg), arg1, arg2, arg3].into_iter().flatten().collect();
                self.math(body, fun, &args)?
            }
            Expression::As { expr, kind, convert } => self.cast(body, expr, kind, convert)?,
            Expression::CooperativeLoad { role, ref data, .. } => self.matrix_load(body, e, role, data)?,
            Expression::CooperativeMultiplyAdd { a, b, c } => {
                format!("coop_multiply_add({})", self.list(body, &[a, b, c])?)
            }
            Expression::ArrayLength(_) => {
                return unsupported("expression", "arrayLength (give lengths as immediates)");
            }
            ref other => return unsupported("expression", other),
        })
    }

    pub(super) fn is_atomic(&self, body: &Body<'a>, pointer: Handle<Expression>) -> bool {
        self.inner(body, pointer).is_atomic_pointer(&self.module.types)
    }

    /// Composition. Vectors may be made of vectors, which braces do not flatten.
    fn compose(
        &self,
        body: &Body<'a>,
        ty: Handle<naga::Type>,
        components: &[Handle<Expression>],
    ) -> Result<String> {
        let list = self.list(body, components)?;
        Ok(match self.module.types[ty].inner {
            TypeInner::Vector { size, .. } if components.len() < size as usize => {
                format!("join{}({list})", size as u8)
            }
            _ => format!("{}{{{list}}}", self.type_name(ty)?),
        })
    }

    /// `base.member`, `base.x` or `base[3]`, on values and on places.
    fn access_index(&self, body: &Body<'a>, base: Handle<Expression>, index: u32) -> Result<String> {
        let place = self.expr(body, base)?;
        let mut handle = match body.resolution(base) {
            TypeResolution::Handle(ty) => Some(*ty),
            TypeResolution::Value(_) => None,
        };
        let mut inner = self.inner(body, base);
        if let TypeInner::Pointer { base, .. } = *inner {
            (handle, inner) = (Some(base), &self.module.types[base].inner);
        }
        Ok(match (inner, handle) {
            (TypeInner::Struct { .. }, Some(ty)) => {
                format!("{place}.{}", self.name(&NameKey::StructMember(ty, index)))
            }
            (TypeInner::Vector { .. } | TypeInner::ValuePointer { .. }, _) => {
                format!("{place}.{}", COMPONENTS[index as usize % 4])
            }
            (TypeInner::Array { .. }, _) => format!("{place}[{index}]"),
            (other, _) => return unsupported("access to", other),
        })
    }

    fn swizzle(
        &self,
        body: &Body<'a>,
        size: VectorSize,
        vector: Handle<Expression>,
        pattern: [SwizzleComponent; 4],
    ) -> Result<String> {
        let TypeInner::Vector { scalar, .. } = *self.inner(body, vector) else {
            return unsupported("swizzle of", self.inner(body, vector));
        };
        let v = self.expr(body, vector)?;
        let parts = pattern[..size as usize].iter().map(|&c| format!("{v}.{}", COMPONENTS[c as usize]));
        let parts = parts.collect::<Vec<_>>().join(", ");
        Ok(format!("vec{}<{}>{{{parts}}}", size as u8, types::scalar(scalar)?))
    }

    fn binary(
        &self,
        body: &Body<'a>,
        e: Handle<Expression>,
        op: BinaryOperator,
        left: Handle<Expression>,
        right: Handle<Expression>,
    ) -> Result<String> {
        let is_float = self.inner(body, left).scalar_kind() == Some(ScalarKind::Float);
        if op == BinaryOperator::Modulo && is_float {
            return Ok(format!("w_mod({})", self.list(body, &[left, right])?));
        }
        let text = format!("({} {} {})", self.expr(body, left)?, operator(op), self.expr(body, right)?);
        // C++ computes 16-bit integers as int.
        Ok(match *self.inner(body, e) {
            TypeInner::Scalar(s @ Scalar { kind: ScalarKind::Sint | ScalarKind::Uint, width: 2 }) => {
                format!("{}{text}", types::scalar(s)?)
            }
            _ => text,
        })
    }

    /// A conversion of values, or of bits where there is no width.
    fn cast(
        &self,
        body: &Body<'a>,
        e: Handle<Expression>,
        kind: ScalarKind,
        convert: Option<u8>,
    ) -> Result<String> {
        let x = bare(&self.expr(body, e)?).to_owned();
        let (size, from) = match *self.inner(body, e) {
            TypeInner::Scalar(s) => (None, s),
            TypeInner::Vector { size, scalar } => (Some(size as u8), scalar),
            ref other => return unsupported("conversion of", other),
        };
        let to = types::scalar(Scalar { kind, width: convert.unwrap_or(from.width) })?;
        Ok(match (size, convert) {
            (None, Some(_)) => format!("{to}({x})"),
            (Some(n), Some(_)) => format!("convert{n}<{to}>({x})"),
            (None, None) => format!("bits<{to}>({x})"),
            (Some(n), None) => format!("bits<vec{n}<{to}>>({x})"),
        })
    }
}

fn unary(op: UnaryOperator) -> &'static str {
    match op {
        UnaryOperator::Negate => "-",
        UnaryOperator::LogicalNot => "!",
        UnaryOperator::BitwiseNot => "~",
    }
}

/// The operator of C++.
pub(super) fn operator(op: BinaryOperator) -> &'static str {
    match op {
        BinaryOperator::Add => "+",
        BinaryOperator::Subtract => "-",
        BinaryOperator::Multiply => "*",
        BinaryOperator::Divide => "/",
        BinaryOperator::Modulo => "%",
        BinaryOperator::Equal => "==",
        BinaryOperator::NotEqual => "!=",
        BinaryOperator::Less => "<",
        BinaryOperator::LessEqual => "<=",
        BinaryOperator::Greater => ">",
        BinaryOperator::GreaterEqual => ">=",
        BinaryOperator::And => "&",
        BinaryOperator::ExclusiveOr => "^",
        BinaryOperator::InclusiveOr => "|",
        BinaryOperator::LogicalAnd => "&&",
        BinaryOperator::LogicalOr => "||",
        BinaryOperator::ShiftLeft => "<<",
        BinaryOperator::ShiftRight => ">>",
    }
}

fn relational(fun: RelationalFunction) -> &'static str {
    match fun {
        RelationalFunction::All => "w_all",
        RelationalFunction::Any => "w_any",
        RelationalFunction::IsNan => "w_isnan",
        RelationalFunction::IsInf => "w_isinf",
    }
}
