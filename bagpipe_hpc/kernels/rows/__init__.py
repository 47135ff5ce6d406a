"""Operations on embedding rows, and copies of them: the definition in torch, and native code for each device."""
