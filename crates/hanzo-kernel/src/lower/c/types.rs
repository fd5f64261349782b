//! Types: their names, the structs with the checks of their layout, and constant arrays.

use naga::{
    AddressSpace, ArraySize, Expression, Handle, Literal, Scalar, ScalarKind, Type, TypeInner,
    proc::{NameKey, TypeResolution},
};

use super::{Result, Writer, matrix, unsupported};

/// The name of a scalar type in the prelude.
pub(super) fn scalar(s: Scalar) -> Result<&'static str> {
    Ok(match (s.kind, s.width) {
        (ScalarKind::Float, 2) => "f16",
        (ScalarKind::Float, 4) => "f32",
        (ScalarKind::Float, 8) => "f64",
        (ScalarKind::Sint, 2) => "i16",
        (ScalarKind::Sint, 4) => "i32",
        (ScalarKind::Sint, 8) => "i64",
        (ScalarKind::Uint, 2) => "u16",
        (ScalarKind::Uint, 4) => "u32",
        (ScalarKind::Uint, 8) => "u64",
        (ScalarKind::Bool, _) => "bool",
        _ => return unsupported("scalar", s),
    })
}

/// A literal of C++. Rust prints the shortest decimal that reads back as the same bits.
pub(super) fn literal(l: Literal) -> Result<String> {
    Ok(match l {
        Literal::F32(v) if v.is_finite() => format!("{v:?}f"),
        Literal::F16(v) if v.is_finite() => format!("f16({:?}f)", v.to_f32()),
        Literal::F64(v) if v.is_finite() => format!("{v:?}"),
        Literal::U32(v) => format!("{v}u"),
        Literal::I32(i32::MIN) => "(-2147483647 - 1)".into(),
        Literal::I32(v) => v.to_string(),
        Literal::U64(v) => format!("{v}ull"),
        Literal::I64(i64::MIN) => "(-9223372036854775807ll - 1)".into(),
        Literal::I64(v) => format!("{v}ll"),
        Literal::U16(v) => format!("u16({v})"),
        Literal::I16(v) => format!("i16({v})"),
        Literal::Bool(v) => v.to_string(),
        _ => return unsupported("literal", l),
    })
}

impl Writer<'_> {
    /// The name of a type; of a pointer, that of a reference.
    pub(super) fn type_name(&self, ty: Handle<Type>) -> Result<String> {
        match &self.module.types[ty].inner {
            TypeInner::Struct { .. } => Ok(self.name(&NameKey::Type(ty)).to_owned()),
            inner => self.inner_name(inner),
        }
    }

    pub(super) fn inner_name(&self, inner: &TypeInner) -> Result<String> {
        Ok(match *inner {
            TypeInner::Scalar(s) | TypeInner::Atomic(s) => scalar(s)?.into(),
            TypeInner::Vector { size, scalar: s } => format!("vec{}<{}>", size as u8, scalar(s)?),
            TypeInner::Array { base, size: ArraySize::Constant(n), .. } => {
                format!("array<{}, {n}>", self.type_name(base)?)
            }
            // A buffer of unknown length is a pointer, and its type that of an element.
            TypeInner::Array { base, size: ArraySize::Dynamic, .. } => self.type_name(base)?,
            TypeInner::Pointer { base, .. } => format!("{}&", self.type_name(base)?),
            TypeInner::ValuePointer { size: None, scalar: s, .. } => format!("{}&", scalar(s)?),
            TypeInner::ValuePointer { size: Some(n), scalar: s, .. } => {
                format!("vec{}<{}>&", n as u8, scalar(s)?)
            }
            TypeInner::CooperativeMatrix { columns, rows, scalar, role } => {
                matrix::type_name(columns, rows, scalar, role)?.into()
            }
            ref other => return unsupported("type", other),
        })
    }

    pub(super) fn resolution_name(&self, ty: &TypeResolution) -> Result<String> {
        match ty {
            TypeResolution::Handle(ty) => self.type_name(*ty),
            TypeResolution::Value(inner) => self.inner_name(inner),
        }
    }

    /// All structs in the order of their dependencies.
    pub(super) fn structs(&mut self) -> Result<()> {
        let module = self.module;
        let shared_with_host = self.host_types();
        for (ty, t) in module.types.iter() {
            let TypeInner::Struct { members, span } = &t.inner else { continue };
            let name = self.name(&NameKey::Type(ty)).to_owned();
            self.line(0, format!("struct {name} {{"));
            let mut checks = format!("static_assert(sizeof({name}) == {span}");
            for (i, member) in (0..).zip(members) {
                let field = self.name(&NameKey::StructMember(ty, i)).to_owned();
                let field_type = self.type_name(member.ty)?;
                self.line(1, format!("{field_type} {field};"));
                checks.push_str(&format!(" && OFFSET({name}, {field}) == {}", member.offset));
            }
            self.line(0, "};");
            if shared_with_host.contains(&ty) {
                self.line(0, format!("{checks}, \"layout of {name}\");"));
            }
        }
        Ok(())
    }

    /// The types that lie in memory which others write or read.
    fn host_types(&self) -> Vec<Handle<Type>> {
        let globals = self.module.global_variables.iter().map(|(_, g)| g);
        let is_host = |space| {
            matches!(space, AddressSpace::Storage { .. } | AddressSpace::Immediate | AddressSpace::Uniform)
        };
        let mut found: Vec<_> = globals.filter(|g| is_host(g.space)).map(|g| g.ty).collect();
        let mut next = 0;
        while let Some(&ty) = found.get(next) {
            next += 1;
            match &self.module.types[ty].inner {
                TypeInner::Struct { members, .. } => found.extend(members.iter().map(|m| m.ty)),
                TypeInner::Array { base, .. } => found.push(*base),
                _ => {}
            }
        }
        found
    }

    /// Constants that stand as variables because they are indexed.
    pub(super) fn constants(&mut self) -> Result<()> {
        let module = self.module;
        for (handle, constant) in module.constants.iter() {
            if self.is_table(constant.ty) {
                let name = self.name(&NameKey::Constant(handle)).to_owned();
                let (ty, value) = (self.type_name(constant.ty)?, self.constant(constant.init)?);
                self.line(0, format!("TABLE {ty} {name} = {value};"));
            }
        }
        Ok(())
    }

    pub(super) fn is_table(&self, ty: Handle<Type>) -> bool {
        matches!(self.module.types[ty].inner, TypeInner::Array { .. })
    }

    /// An expression outside functions.
    pub(super) fn constant(&self, e: Handle<Expression>) -> Result<String> {
        Ok(match self.module.global_expressions[e] {
            Expression::Literal(l) => literal(l)?,
            Expression::Constant(c) => self.constant(self.module.constants[c].init)?,
            Expression::ZeroValue(ty) => format!("{}{{}}", self.type_name(ty)?),
            Expression::Splat { size, value } => format!("splat{}({})", size as u8, self.constant(value)?),
            Expression::Compose { ty, ref components } => {
                let parts = components.iter().map(|&c| self.constant(c)).collect::<Result<Vec<_>>>()?;
                format!("{}{{{}}}", self.type_name(ty)?, parts.join(", "))
            }
            ref other => return unsupported("constant expression", other),
        })
    }
}
