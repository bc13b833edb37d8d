1 + 1
# %% A semicolon hides the value, at any position
1 + 1;
# %%
1 + 1 ;  # a comment
# %%
(1 +
 1) \
 ;
# %% but not one in a string or a comment
'a;b'
# %%
'x'  # not hidden;
# %%
x = 1; x
# %%
π = 'é'; π;
# %% None is not a value
None
# %%
x = 5
# %%
# nothing
# %%
if x: x
# %% Line ends of other systems
x = """a
b"""; x
# %% Strings are shown as they are, in JSON they are quoted
'héllo\nworld'
# %% An expression that ends in a lone surrogate
'\ud800'
# %% Numbers that JSON has no word for
[float('nan'), float('inf'), -float('inf')]
