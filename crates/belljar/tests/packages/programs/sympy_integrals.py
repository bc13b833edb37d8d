import sympy

x = sympy.symbols("x")
assert sympy.integrate(sympy.sin(x) ** 2, (x, 0, sympy.pi)) == sympy.pi / 2
assert str(sympy.factor(x**2 - 1)) == "(x - 1)*(x + 1)"
